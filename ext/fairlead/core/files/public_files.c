#include "public_files.h"
#include "base/accept_encoding.h"
#include "base/platform.h"
#include "content_type.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char immutable[] = "public, max-age=31536000, immutable";
static const char digested_folders[] = "assets/";

typedef struct fl_public_files {
    int folder;
    bool known_types_only;
    bool keeps_cache_control; /* the app's own value is not to be replaced */
    fl_file_header headers[FL_MAX_PUBLIC_HEADERS + 1];
} fl_public_files;

/* What a request asks of a file. */
typedef struct wish {
    fl_preconditions conditions;
    fl_accept_encoding_reader codings;
} wish;

/* A file that was found, with what its response says of it. */
typedef struct found {
    fl_file file;
    const fl_content_type *type;
    fl_coding coding;
} found;

void fl_public_files_close(fl_public_files *files) {
    if (files == NULL)
        return;
    for (fl_file_header *header = files->headers; header->name != NULL; header++) {
        free((void *) header->name);
        free((void *) header->value);
    }
    close(files->folder);
    free(files);
}

/* Whether an app that names no more than "public" and a time would accept a longer time for files that never change. */
static bool may_be_replaced(const char *cache_control) {
    return strncmp(cache_control, "public, max-age=", 16) == 0 && strchr(cache_control + 16, ',') == NULL;
}

fl_public_files *fl_public_files_open(const char *folder, const fl_public_options *options) {
    fl_public_files *files = calloc(1, sizeof *files);
    if (files == NULL)
        return NULL;
    files->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->folder < 0) {
        free(files);
        return NULL;
    }
    files->known_types_only = options->known_types_only;
    const fl_file_header *header = options->headers;
    for (int i = 0; i < FL_MAX_PUBLIC_HEADERS && header->name != NULL; i++, header++) {
        char *name = strdup(header->name), *value = strdup(header->value);
        if (name == NULL || value == NULL) {
            free(name);
            free(value);
            fl_public_files_close(files);
            errno = ENOMEM;
            return NULL;
        }
        files->headers[i] = (fl_file_header) {name, value};
        if (strcmp(name, "cache-control") == 0)
            files->keeps_cache_control = !may_be_replaced(value);
    }
    return files;
}

/* Only complete requests without a body, for an ordinary path. */
static bool is_for_file(const fl_exchange *exchange, const char *bytes) {
    const fl_request *request = &exchange->request;
    const fl_head *head = request->head;
    bool get = head->head_method || (head->method.size == 3 && memcmp(bytes + head->method.at, "GET", 3) == 0);
    return get && !request->chunked && request->content_length == 0 && !head->upgrade &&
           (head->form == FL_TARGET_ORIGIN || head->form == FL_TARGET_ABSOLUTE);
}

/* Reads the headers that choose and limit the file. False: a field that has one value is repeated. */
static bool read_wish(const fl_head *head, const char *bytes, wish *wish) {
    wish->conditions = (fl_preconditions) {.head = head->head_method};
    fl_accept_encoding_begin(&wish->codings);
    for (uint32_t i = 0; i < head->count; i++) {
        const fl_header *header = &head->headers[i];
        const char *value = bytes + header->value.at;
        if (header->id == FL_HEADER_ACCEPT_ENCODING) {
            fl_accept_encoding_add(&wish->codings, value, header->value.size);
        } else if (header->id == FL_HEADER_OTHER || header->id == FL_HEADER_RANGE || header->id == FL_HEADER_IF_NONE_MATCH ||
                   header->id == FL_HEADER_IF_MODIFIED_SINCE) {
            fl_text *field = fl_precondition(&wish->conditions, bytes + header->name.at, header->name.size);
            if (field == NULL)
                continue;
            if (field->bytes != NULL)
                return false;
            *field = (fl_text) {value, header->value.size};
        }
    }
    return true;
}

/* Replaces an opened file by its copy in the coding that the client prefers, if there is one. */
static void find_coded(const fl_public_files *files, const char *path, const wish *wish, found *found) {
    static const char *const extensions[] = {".br", ".zst", ".gz"};
    fl_accept_encoding accepted = fl_accept_encoding_end(&wish->codings);
    unsigned available = (1 << FL_CODING_IDENTITY) - 1;
    for (;;) {
        char name[FL_MAX_PUBLIC_PATH + 8];
        fl_file coded;
        fl_coding coding = fl_accept_encoding_best(&accepted, available);
        if (coding == FL_CODING_IDENTITY)
            return;
        snprintf(name, sizeof name, "%s%s", path, extensions[coding]);
        if (fl_file_open(files->folder, name, &coded)) {
            close(found->file.descriptor);
            found->file = coded;
            found->coding = coding;
            return;
        }
        available &= ~(1u << coding);
    }
}

static bool open_file(const fl_public_files *files, const char *path, const fl_content_type *type, const wish *wish,
                      found *found) {
    if (!fl_file_open(files->folder, path, &found->file))
        return false;
    found->type = type;
    found->coding = FL_CODING_IDENTITY;
    if (type != NULL && type->compressible)
        find_coded(files, path, wish, found);
    return true;
}

/* Like Rails: /page is page, page.html or page/index.html, unless its extension says what it is. */
static bool find(const fl_public_files *files, char *path, int size, const wish *wish, found *found) {
    static const fl_content_type unknown = {"application/octet-stream", false};
    const fl_content_type *type = fl_content_type_of(path, (size_t) size), *html = fl_content_type_of(".html", 5);
    if (size > 0 && (type != NULL || !files->known_types_only) &&
        open_file(files, path, type != NULL ? type : &unknown, wish, found))
        return true;
    if (type != NULL || size + 11 >= FL_MAX_PUBLIC_PATH)
        return false;
    if (size > 0) {
        strcpy(path + size, ".html");
        if (open_file(files, path, html, wish, found))
            return true;
    }
    strcpy(path + size, size > 0 ? "/index.html" : "index.html");
    return open_file(files, path, html, wish, found);
}

static void respond(fl_exchange *exchange, const fl_public_files *files, const char *path, const wish *wish,
                    const found *found) {
    fl_file_header headers[FL_MAX_PUBLIC_HEADERS + 5];
    int count = 0;
    fl_validators validators = {found->file.etag, found->file.etag_size, found->file.modified,
                                (int64_t) ((exchange->context->now + exchange->context->wall_offset) / 1000000)};
    fl_selection selection = fl_select(&wish->conditions, &validators, found->file.size);
    bool immutable_now = strncmp(path, digested_folders, sizeof digested_folders - 1) == 0 && !files->keeps_cache_control &&
                         fl_is_digested(path);
    for (const fl_file_header *header = files->headers; header->name != NULL; header++)
        if (!immutable_now || strcmp(header->name, "cache-control") != 0)
            headers[count++] = *header;
    if (immutable_now)
        headers[count++] = (fl_file_header) {"cache-control", immutable};
    if (selection.code == 200 || selection.code == 206)
        headers[count++] = (fl_file_header) {"content-type", found->type->name};
    if (found->type->compressible)
        headers[count++] = (fl_file_header) {"vary", "accept-encoding"};
    if (found->coding != FL_CODING_IDENTITY && selection.code != 304)
        headers[count++] = (fl_file_header) {"content-encoding", fl_coding_name(found->coding)};
    headers[count] = (fl_file_header) {0};
    fl_exchange_release_head(exchange);
    fl_file_respond(exchange, &found->file, selection, headers);
}

bool fl_public_files_serve(fl_exchange *exchange) {
    const fl_public_files *files = exchange->context->public_files;
    const fl_head *head = exchange->request.head;
    const char *bytes = fl_exchange_head_bytes(exchange);
    char path[FL_MAX_PUBLIC_PATH + 16];
    wish wish;
    found found;
    if (!is_for_file(exchange, bytes))
        return false;
    int size = fl_public_path(bytes + head->path.at, head->path.size, path);
    if (size < 0 || !read_wish(head, bytes, &wish) || !find(files, path, size, &wish, &found))
        return false;
    exchange->state = FL_EXCHANGE_FILE;
    exchange->queueing.recorded = false;
    exchange->staging = &exchange->context->slab;
    if (exchange->protocol->taken != NULL)
        exchange->protocol->taken(exchange); /* the bytes of the head stay where they are */
    respond(exchange, files, path, &wish, &found);
    return true;
}
