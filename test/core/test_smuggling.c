/* The cases of smuggling.txt, each sent in one part, byte by byte, and split at every position. The responses must be the same each time,
 * and a smuggled request must never be served. */
#include "peer.h"

enum { MAX_BYTES = 32768, MAX_WORDS = 16 };

typedef struct word {
    char name[32];
    char bytes[1024];
    size_t size;
} word;

static word words[MAX_WORDS];
static unsigned word_count;

static bool smuggled;

static size_t expand(const char *text, size_t length, char *bytes);

/* Expands the text between braces: the name of a word, or text*times. */
static size_t expand_braces(const char *text, size_t length, char *bytes) {
    for (unsigned i = 0; i < word_count; i++)
        if (strlen(words[i].name) == length && memcmp(words[i].name, text, length) == 0) {
            memcpy(bytes, words[i].bytes, words[i].size);
            return words[i].size;
        }
    size_t star = length;
    while (star > 0 && text[star - 1] != '*')
        star--;
    if (star == 0) {
        printf("smuggling.txt: {%.*s} is not defined\n", (int) length, text);
        exit(1);
    }
    size_t once = expand(text, star - 1, bytes), times = strtoul(text + star, NULL, 10);
    for (size_t i = 1; i < times; i++)
        memcpy(bytes + i * once, bytes, once);
    return times * once;
}

static size_t expand(const char *text, size_t length, char *bytes) {
    size_t size = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '{') {
            const char *end = memchr(text + i, '}', length - i);
            size += expand_braces(text + i + 1, (size_t) (end - text) - i - 1, bytes + size);
            i = (size_t) (end - text);
        } else if (text[i] == '\\') {
            char digits[3] = {text[i + 1] == 'x' ? text[i + 2] : '0', text[i + 1] == 'x' ? text[i + 3] : '0', 0};
            switch (text[++i]) {
            case 'r': bytes[size++] = '\r'; break;
            case 'n': bytes[size++] = '\n'; break;
            case 't': bytes[size++] = '\t'; break;
            case 'v': bytes[size++] = '\v'; break;
            case '0': bytes[size++] = 0; break;
            case 'x':
                bytes[size++] = (char) strtoul(digits, NULL, 16);
                i += 2;
                break;
            default: bytes[size++] = text[i];
            }
        } else {
            bytes[size++] = text[i];
        }
    }
    return size;
}

/* Answers each received request with its path. */
static void serve(fl_loop *loop) {
    for (int i = 0; i < 2; i++) {
        fl_loop_turn(loop);
        for (fl_exchange *exchange; (exchange = fl_loop_take(loop)) != NULL;) {
            const char *bytes;
            size_t size;
            char path[256];
            snprintf(path, sizeof path, "%s", path_of(exchange));
            smuggled |= strcmp(path, "/smuggled") == 0;
            while (fl_exchange_body(exchange, &bytes, &size) == FL_OK && size > 0)
                fl_exchange_consume_body(exchange, size);
            answer(exchange, 200, path);
        }
    }
    fl_loop_turn(loop);
}

/* Describes the responses in the words of smuggling.txt. */
static void summarise(const received_bytes *received, char *summary) {
    const char *at = received->bytes, *end = received->bytes + received->size;
    bool open = true;
    *summary = 0;
    while (at != NULL && at < end) {
        int code = atoi(at + 9);
        const char *body = strstr(at, "\r\n\r\n"), *length = strstr(at, "content-length: ");
        size_t size = body != NULL && length != NULL && length < body ? strtoul(length + 16, NULL, 10) : 0;
        if (body == NULL || memcmp(at, "HTTP/1.1 ", 9) != 0 || size > (size_t) (end - body - 4)) {
            strcat(summary, "garbage ");
            return;
        }
        bool next = size == 5 && memcmp(body + 4, "/next", 5) == 0;
        if (code >= 200)
            sprintf(summary + strlen(summary), next ? "next " : "%d ", code);
        open = code < 400;
        at = body + 4 + size;
    }
    if (!received->ended && !open)
        strcat(summary, "still open ");
    if (received->ended && open)
        strcat(summary, "closed ");
    if (summary[0] != 0)
        summary[strlen(summary) - 1] = 0;
}

/* Sends `bytes` over a new connection in two parts, split at `cut`; byte by byte if `cut` is 0. */
static void send_in_pieces(fl_loop *loop, const char *bytes, size_t size, size_t cut, char *summary) {
    int pair[2];
    received_bytes received = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        abort();
    fl_close_on_exec_nonblocking(pair[0]);
    fl_close_on_exec_nonblocking(pair[1]);
    CHECK(fl_connection_open(&loop->context, loop->accepting.listeners, pair[0], "", 0) != NULL);
    for (size_t at = 0, piece; at < size; at += piece) {
        piece = cut == 0 ? 1 : at < cut ? cut : size - at;
        if (send(pair[1], bytes + at, piece, MSG_NOSIGNAL) < 0 && errno != EPIPE)
            test_fail(__FILE__, __LINE__, "could not send: %s", strerror(errno));
        serve(loop);
    }
    receive_available(pair[1], &received);
    summarise(&received, summary);
    free(received.bytes);
    close(pair[1]);
    fl_loop_turn(loop);
}

/* "200 next" means that the connection stays open, "200" that it is closed. */
static void parse_expected(const char *expected, char *summary) {
    size_t length = strlen(expected);
    snprintf(summary, 64, "%s", expected);
    if (length >= 3 && strcmp(expected + length - 3, "…") == 0)
        summary[length > 3 ? length - 4 : 0] = 0;
    else if (length >= 3 && strcmp(expected + length - 3, "200") == 0)
        strcat(summary, " closed");
}

static void check_case(fl_loop *loop, const char *name, const char *expected, const char *bytes, size_t size) {
    char want[64], summary[1024];
    parse_expected(expected, want);
    test_begin(name);
    smuggled = false;
    for (size_t cut = 0; cut <= size && !test.failing; cut++) {
        send_in_pieces(loop, bytes, size, cut, summary);
        if (strcmp(want, summary) != 0)
            test_fail(__FILE__, __LINE__, "cut at %zu of %zu (0: everywhere): expected \"%s\", got \"%s\"", cut, size, want,
                      summary);
    }
    CHECK(!smuggled);
    CHECK_NUMBER(0, loop->context.counts.connections);
    test_end();
}

static char *trim(char *text) {
    char *end = text + strlen(text);
    while (end > text && end[-1] == ' ')
        *--end = 0;
    return text;
}

int main(void) {
    static char line[4096], bytes[MAX_BYTES];
    fl_limits limits = peer_limits;
    limits.head = (fl_head_limits){300, 1500, 20};
    limits.body_size = 1000;
    peer_server server = server_with(limits);
    FILE *file = fopen("smuggling.txt", "r");
    if (file == NULL) {
        perror("smuggling.txt");
        return 1;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *name = strchr(line, '|'), *sent = name != NULL ? strchr(name + 1, '|') : NULL;
        if (strncmp(line, "define ", 7) == 0 && word_count < MAX_WORDS) {
            word *new = &words[word_count++];
            int skipped = 0;
            sscanf(line, "define %31s %n", new->name, &skipped);
            new->size = expand(line + skipped, strlen(line + skipped), new->bytes);
        } else if (line[0] != '#' && line[0] != '=' && sent != NULL) {
            *name++ = *sent++ = 0;
            check_case(server.loop, trim(name + 1), trim(line), bytes, expand(sent + 1, strlen(sent + 1), bytes));
        }
    }
    fclose(file);
    CHECK(test.passed >= 250);
    server_stop(&server);
    return test_summary();
}
