-- Has wrk print its result once more, exactly and for a program to read. Only `done` is defined: wrk then calls
-- no Lua while it measures.
function done(summary, latency, requests)
  local errors = summary.errors
  io.write("report ", string.format(
    '{"requests":%d,"microseconds":%d,"bytes":%d,' ..
    '"connect":%d,"read":%d,"write":%d,"timeout":%d,"status":%d,' ..
    '"mean":%.1f,"max":%.1f,"p50":%.1f,"p75":%.1f,"p90":%.1f,"p99":%.1f,"p999":%.1f}',
    summary.requests, summary.duration, summary.bytes,
    errors.connect, errors.read, errors.write, errors.timeout, errors.status,
    latency.mean, latency.max, latency:percentile(50), latency:percentile(75), latency:percentile(90),
    latency:percentile(99), latency:percentile(99.9)), "\n")
end
