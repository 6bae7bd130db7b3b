#include "file.h"
#include "base/http_date.h"
#include "base/platform.h"
#include "connection/file_body.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool fl_file_describe(int descriptor, fl_file *file) {
    struct stat status;
    if (fstat(descriptor, &status) < 0 || !S_ISREG(status.st_mode))
        return false;
    file->descriptor = descriptor;
    file->size = (uint64_t) status.st_size;
    file->modified = status.st_mtim.tv_sec;
    uint64_t modified = (uint64_t) status.st_mtim.tv_sec * 1000000000 + (uint64_t) status.st_mtim.tv_nsec;
    file->etag_size = (size_t) snprintf(file->etag, sizeof file->etag, "\"%llx-%llx\"", (unsigned long long) modified,
                                        (unsigned long long) file->size);
    return true;
}

bool fl_file_open(int folder, const char *path, fl_file *file) {
    int descriptor = fl_open_beneath(folder, path);
    if (descriptor < 0)
        return false;
    if (fl_file_describe(descriptor, file))
        return true;
    close(descriptor);
    errno = ENOENT;
    return false;
}

static fl_status add(fl_exchange *exchange, const char *name, const char *value, size_t size) {
    return fl_exchange_header(exchange, name, strlen(name), value, size);
}

static fl_status add_range(fl_exchange *exchange, const fl_file *file, fl_selection selection) {
    char text[80];
    int size;
    if (selection.code == 206)
        size = snprintf(text, sizeof text, "bytes %llu-%llu/%llu", (unsigned long long) selection.at,
                        (unsigned long long) (selection.at + selection.size - 1), (unsigned long long) file->size);
    else
        size = snprintf(text, sizeof text, "bytes */%llu", (unsigned long long) file->size);
    return add(exchange, "content-range", text, (size_t) size);
}

static fl_status write_head(fl_exchange *exchange, const fl_file *file, fl_selection selection, const fl_file_header *headers) {
    char date[FL_HTTP_DATE_SIZE], length[24];
    fl_status status = fl_exchange_begin(exchange, selection.code);
    for (; status == FL_OK && headers->name != NULL; headers++)
        status = add(exchange, headers->name, headers->value, strlen(headers->value));
    if (status == FL_OK)
        status = add(exchange, "etag", file->etag, file->etag_size);
    fl_http_date_format(date, file->modified);
    if (status == FL_OK)
        status = add(exchange, "last-modified", date, sizeof date);
    if (status == FL_OK && selection.code != 304)
        status = add(exchange, "accept-ranges", "bytes", 5);
    if (status == FL_OK && (selection.code == 206 || selection.code == 416))
        status = add_range(exchange, file, selection);
    int size = snprintf(length, sizeof length, "%llu", (unsigned long long) selection.size);
    if (status == FL_OK && selection.code != 304)
        status = add(exchange, "content-length", length, (size_t) size);
    return status == FL_OK ? fl_exchange_head_end(exchange, (int64_t) selection.size) : status;
}

void fl_file_respond(fl_exchange *exchange, const fl_file *file, fl_selection selection, const fl_file_header *headers) {
    fl_status status = write_head(exchange, file, selection, headers);
    if (status == FL_OK && fl_file_body_begin(exchange, file->descriptor, selection.at, selection.size) == FL_OK)
        return;
    if (status != FL_OK)
        close(file->descriptor);
    fl_exchange_abandon(exchange);
}
