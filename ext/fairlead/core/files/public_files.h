/* Serves the files of one folder, before a request is queued for the app. What the core does not serve goes to the app, as if there were no
 * folder: other methods, paths that have to be interpreted, hidden files, and files that are missing or cannot be opened.
 * fl_public_files_open allocates it, fl_public_files_close frees it. The caller of fl_public_files_serve holds the lock. */
#ifndef FL_PUBLIC_FILES_H
#define FL_PUBLIC_FILES_H

#include "file.h"

enum { FL_MAX_PUBLIC_HEADERS = 16, FL_MAX_PUBLIC_PATH = 1024 };

typedef struct fl_public_options {
    const fl_file_header *headers; /* of every response; ends with an empty name */
    bool known_types_only;         /* files of other types are left to the app */
} fl_public_options;

/* NULL, with errno: the folder cannot be opened, or there is no memory. */
struct fl_public_files *fl_public_files_open(const char *folder, const fl_public_options *options);
void fl_public_files_close(struct fl_public_files *files);

/* Whether the request was for a file, which is sent. */
bool fl_public_files_serve(fl_exchange *exchange);

/* The file that a path names, decoded and without its slashes at both ends. Returns its size, or -1 if the path is left to the app. `room`
 * has FL_MAX_PUBLIC_PATH bytes. */
int fl_public_path(const char *path, size_t size, char *room);

/* Whether the name of a file has a digest of its content: Propshaft's and Sprockets' app-1a2b3c4d….css, Vite's app-1a2B3c_4.js. */
bool fl_is_digested(const char *path);

#endif
