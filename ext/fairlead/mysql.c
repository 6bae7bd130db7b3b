/* What a MariaDB or MySQL server has answered, as far as it lies in the socket: looked at without taking it.
 * https://mariadb.com/kb/en/result-set-packets/ */
#include "fairlead.h"

#include <sys/socket.h>

enum {
    PEEK = 16384, /* the client library reads so much at once: what is longer it may have to wait for */
    HEAD = 4,
    OK = 0x00,
    INFILE = 0xfb,
    END = 0xfe, /* in a packet of at most LONGEST_END bytes: a longer one that begins so is a row */
    LONGEST_END = 8,
    ERROR = 0xff,
    ENDS = 2 /* of a result with rows: one after its columns, and one after its rows */
};

/* How many results there are, or -1 unless these are whole. */
static int count(const uint8_t *bytes, size_t size) {
    int results = 0, ends = 0;
    size_t at = 0;
    while (at + HEAD < size) {
        const uint8_t *packet = bytes + at;
        size_t length = packet[0] | packet[1] << 8 | (size_t) packet[2] << 16;
        uint8_t first = packet[HEAD];
        if (first == ERROR)
            ends = 0;
        else if (ends > 0)
            ends -= first == END && length <= LONGEST_END;
        else if (first == INFILE)
            return -1;
        else
            ends = first == OK ? 0 : ENDS;
        results += ends == 0;
        at += HEAD + length;
    }
    return ends == 0 && at == size ? results : -1;
}

/* results(descriptor): how many have come, if all that has come are whole results; nil also where that cannot be known, as
 * with TLS. What is wrong the driver says. */
static VALUE results(VALUE self, VALUE descriptor) {
    uint8_t bytes[PEEK];
    ssize_t size = recv(NUM2INT(descriptor), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    int whole = size > HEAD && size < PEEK ? count(bytes, size) : -1;
    return whole < 0 ? Qnil : INT2FIX(whole);
}

void fl_init_mysql(void) {
    rb_define_singleton_method(rb_define_module_under(fl_mFairlead, "MysqlAnswer"), "results", results, 1);
}
