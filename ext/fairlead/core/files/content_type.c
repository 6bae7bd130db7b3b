#include "content_type.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_EXTENSION = 5 };

typedef struct entry {
    const char *extension;
    fl_content_type type;
} entry;

/* Sorted by extension */
static const entry entries[] = {
    {"apng", {"image/apng", false}},
    {"atom", {"application/atom+xml", true}},
    {"avif", {"image/avif", false}},
    {"bmp", {"image/bmp", false}},
    {"bz2", {"application/x-bzip2", false}},
    {"css", {"text/css", true}},
    {"csv", {"text/csv", true}},
    {"dmg", {"application/octet-stream", false}},
    {"doc", {"application/msword", false}},
    {"docx", {"application/vnd.openxmlformats-officedocument.wordprocessingml.document", false}},
    {"eot", {"application/vnd.ms-fontobject", true}},
    {"exe", {"application/x-msdownload", false}},
    {"gif", {"image/gif", false}},
    {"gz", {"application/x-gzip", false}},
    {"htm", {"text/html", true}},
    {"html", {"text/html", true}},
    {"ico", {"image/vnd.microsoft.icon", true}},
    {"ics", {"text/calendar", true}},
    {"jar", {"application/java-archive", false}},
    {"jpeg", {"image/jpeg", false}},
    {"jpg", {"image/jpeg", false}},
    {"js", {"text/javascript", true}},
    {"json", {"application/json", true}},
    {"m4a", {"audio/mp4a-latm", false}},
    {"m4v", {"video/mp4", false}},
    {"mjs", {"text/javascript", true}},
    {"mov", {"video/quicktime", false}},
    {"mp3", {"audio/mpeg", false}},
    {"mp4", {"video/mp4", false}},
    {"oga", {"audio/ogg", false}},
    {"ogg", {"application/ogg", false}},
    {"ogv", {"video/ogg", false}},
    {"otf", {"font/otf", true}},
    {"pdf", {"application/pdf", false}},
    {"png", {"image/png", false}},
    {"ppt", {"application/vnd.ms-powerpoint", false}},
    {"pptx", {"application/vnd.openxmlformats-officedocument.presentationml.presentation", false}},
    {"rss", {"application/rss+xml", true}},
    {"svg", {"image/svg+xml", true}},
    {"swf", {"application/x-shockwave-flash", false}},
    {"tar", {"application/x-tar", false}},
    {"tif", {"image/tiff", false}},
    {"tiff", {"image/tiff", false}},
    {"ttf", {"font/ttf", true}},
    {"txt", {"text/plain", true}},
    {"vtt", {"text/vtt", true}},
    {"wasm", {"application/wasm", true}},
    {"wav", {"audio/x-wav", false}},
    {"webm", {"video/webm", false}},
    {"webp", {"image/webp", false}},
    {"woff", {"font/woff", false}},
    {"woff2", {"font/woff2", false}},
    {"xhtml", {"application/xhtml+xml", true}},
    {"xls", {"application/vnd.ms-excel", false}},
    {"xlsx", {"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", false}},
    {"xml", {"application/xml", true}},
    {"zip", {"application/zip", false}},
};

static int compare(const void *extension, const void *candidate) {
    return strcmp(extension, ((const entry *) candidate)->extension);
}

const fl_content_type *fl_content_type_of(const char *path, size_t size) {
    char extension[MAX_EXTENSION + 1];
    size_t length = 0;
    while (length < size && path[size - length - 1] != '.' && path[size - length - 1] != '/') length++;
    if (length == 0 || length > MAX_EXTENSION || length == size || path[size - length - 1] != '.')
        return NULL;
    for (size_t i = 0; i < length; i++) {
        char byte = path[size - length + i];
        extension[i] = byte >= 'A' && byte <= 'Z' ? (char) (byte | 0x20) : byte;
    }
    extension[length] = 0;
    const entry *found = bsearch(extension, entries, sizeof entries / sizeof *entries, sizeof *entries, compare);
    return found == NULL ? NULL : &found->type;
}
