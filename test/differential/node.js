// What Node's parser makes of each request given on standard input; the form is that of test/core/verdicts.c.
"use strict";
process.removeAllListeners("warning");
process.noDeprecation = true;
const { HTTPParser } = process.binding("http_parser");

function judge(bytes) {
  const parser = new HTTPParser();
  const seen = [];
  let upgrades = false, ends = false, method, target, body, fields = [];
  parser.initialize(HTTPParser.REQUEST, {});
  parser[HTTPParser.kOnHeaders | 0] = (headers, url) => { // many fields come in parts, and trailers when all is known
    if (url) target = url;
    if (method === undefined) fields.push(...headers);
  };
  parser[HTTPParser.kOnHeadersComplete | 0] = (major, minor, headers, number, url, status, text, upgrade, keepAlive) => {
    method = HTTPParser.methods ? HTTPParser.methods[number] : number;
    if (url !== undefined) target = url;
    fields.push(...(headers || []));
    body = "";
    upgrades = upgrade;
    ends = !keepAlive;
    return 0;
  };
  parser[HTTPParser.kOnBody | 0] = (part) => { body += part.toString("hex"); };
  parser[HTTPParser.kOnMessageComplete | 0] = () => {
    seen.push(`${names[method] || method} ${target} ${body} ${hexadecimal(fields)}`);
    method = undefined;
    fields = [];
  };
  const result = parser.execute(bytes);
  let outcome;
  if (result instanceof Error) outcome = ends && result.code === "HPE_CLOSED_CONNECTION" ? "closed" : `refused ${result.code}`;
  else if (upgrades) outcome = "upgrade";
  else if (ends && method === undefined && seen.length > 0) outcome = "closed";
  else {
    const rest = parser.finish();
    outcome = method !== undefined || rest instanceof Error ? "more" : "end";
  }
  return [...seen, outcome].join("\t");
}

const hexadecimal = (fields) => fields.map((text, at) => Buffer.from(text + (at % 2 ? "\n" : ":"), "latin1").toString("hex")).join("");
const names = process.binding("http_parser").allMethods || process.binding("http_parser").methods;
const input = require("fs").readFileSync(0);
const lines = [];
for (let at = 0; at < input.length;) {
  const size = input.readUInt32LE(at);
  lines.push(judge(input.subarray(at + 4, at + 4 + size)));
  at += 4 + size;
}
process.stdout.write(Buffer.from(lines.join("\n") + "\n", "latin1"));
