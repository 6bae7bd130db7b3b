/* Fairlead::Loop: the files that the core serves, and its error pages. Fairlead::ContentCoding. */
#include "fairlead.h"
#include "base/accept_encoding.h"
#include "connection/error_page.h"
#include "files/public_files.h"

#include <string.h>

static int add_header(VALUE name, VALUE value, VALUE data) {
    fl_file_header **next = (fl_file_header **) data;
    **next = (fl_file_header) {StringValueCStr(name), StringValueCStr(value)};
    ++*next;
    return ST_CONTINUE;
}

/* serve_files(folder, headers, known_types_only): `headers` is a Hash of lower-case names and values. */
static VALUE loop_serve_files(VALUE object, VALUE folder, VALUE headers, VALUE known_types_only) {
    fl_file_header list[FL_MAX_PUBLIC_HEADERS + 1] = {{0}}, *next = list;
    Check_Type(headers, T_HASH);
    if (RHASH_SIZE(headers) > FL_MAX_PUBLIC_HEADERS)
        rb_raise(rb_eArgError, "at most %d headers", FL_MAX_PUBLIC_HEADERS);
    rb_hash_foreach(headers, add_header, (VALUE) &next);
    const char *path = StringValueCStr(folder);
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    fl_public_files_close(loop->context.public_files);
    loop->context.public_files =
        fl_public_files_open(path, &(fl_public_options) {.headers = list, .known_types_only = RTEST(known_types_only)});
    bool opened = loop->context.public_files != NULL;
    int error = errno;
    fl_unlock(&loop->context);
    if (!opened)
        rb_syserr_fail_str(error, folder);
    RB_GC_GUARD(headers);
    return Qnil;
}

/* error_page(code, bytes): false if the core does not keep it. */
static VALUE loop_error_page(VALUE object, VALUE code, VALUE bytes) {
    int number = NUM2INT(code);
    StringValue(bytes);
    fl_loop *loop = fl_lock(fl_ruby_loop_struct(object));
    bool kept = fl_error_page_set(&loop->context, number, RSTRING_PTR(bytes), (size_t) RSTRING_LEN(bytes));
    fl_unlock(&loop->context);
    RB_GC_GUARD(bytes);
    return kept ? Qtrue : Qfalse;
}

/* ContentCoding.best(accept_encoding, available): the name in the Array that the client prefers, by the rules for files; nil: none. */
static VALUE best_coding(VALUE self, VALUE value, VALUE available) {
    unsigned set = 0;
    Check_Type(available, T_ARRAY);
    for (long i = 0; i < RARRAY_LEN(available); i++) {
        VALUE name = RARRAY_AREF(available, i);
        const char *wanted = StringValueCStr(name);
        for (int coding = 0; coding < FL_CODING_IDENTITY; coding++)
            if (strcmp(wanted, fl_coding_name((fl_coding) coding)) == 0)
                set |= 1U << coding;
    }
    fl_accept_encoding_reader reader;
    fl_accept_encoding_begin(&reader);
    if (!NIL_P(value)) {
        StringValue(value);
        fl_accept_encoding_add(&reader, RSTRING_PTR(value), (size_t) RSTRING_LEN(value));
        RB_GC_GUARD(value);
    }
    fl_accept_encoding accepted = fl_accept_encoding_end(&reader);
    fl_coding best = fl_accept_encoding_best(&accepted, set);
    return best == FL_CODING_IDENTITY ? Qnil : rb_interned_str_cstr(fl_coding_name(best));
}

void fl_init_files(VALUE loop_class) {
    rb_define_singleton_method(rb_define_module_under(fl_mFairlead, "ContentCoding"), "best", best_coding, 2);
    rb_define_const(loop_class, "MAX_ERROR_PAGE", INT2FIX(FL_MAX_ERROR_PAGE));
    rb_define_method(loop_class, "error_page", loop_error_page, 2);
    rb_define_method(loop_class, "serve_files", loop_serve_files, 3);
}
