/* Fairlead::TLS: certificates for the listeners of a loop. */
#include "fairlead.h"
#include "http2/protocol.h"

#include <ruby/thread.h>

static VALUE eCertificate;

static void tls_free(void *data) {
    if (data != NULL)
        fl_tls_close(data);
}

static const rb_data_type_t tls_type = {
    .wrap_struct_name = "Fairlead::TLS",
    .function = {.dfree = tls_free},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE tls_allocate(VALUE class) {
    return TypedData_Wrap_Struct(class, &tls_type, NULL);
}

fl_tls *fl_ruby_tls_get(VALUE self) {
    fl_tls *tls = rb_check_typeddata(self, &tls_type);
    if (tls == NULL)
        rb_raise(rb_eArgError, "no certificates are loaded");
    return tls;
}

/* TLS.new(descriptor): of `memory` in another process, and is taken over; nil: none. */
static VALUE tls_initialize(VALUE self, VALUE memory) {
    fl_tls *tls = fl_tls_open(NIL_P(memory) ? -1 : NUM2INT(memory));
    if (tls == NULL)
        rb_raise(eCertificate, "Fairlead was built without OpenSSL.");
    RTYPEDDATA_DATA(self) = tls;
    return self;
}

/* load([[certificate, key], …], authorities, required): the paths of their files; nil, false: clients need no certificates. Connections
 * that begin from now on use them. Raises TLS::Error, and changes nothing, if one cannot be used. */
static VALUE tls_load(VALUE self, VALUE pairs, VALUE authorities, VALUE required) {
    fl_tls *tls = fl_ruby_tls_get(self);
    char error[FL_TLS_ERROR] = "There is no memory for certificates.";
    long count = RARRAY_LEN(pairs);
    VALUE held;
    fl_tls_files *files = ALLOCV_N(fl_tls_files, held, count);
    for (long i = 0; i < count; i++) {
        VALUE pair = rb_ary_entry(pairs, i), certificate = rb_ary_entry(pair, 0), key = rb_ary_entry(pair, 1);
        files[i] = (fl_tls_files) {StringValueCStr(certificate), StringValueCStr(key)};
    }
    fl_tls_clients clients = {NIL_P(authorities) ? NULL : StringValueCStr(authorities), RTEST(required)};
    bool loaded = fl_tls_load(tls, files, (size_t) count, NIL_P(authorities) ? NULL : &clients, error);
    ALLOCV_END(held);
    RB_GC_GUARD(pairs);
    RB_GC_GUARD(authorities);
    if (!loaded)
        rb_raise(eCertificate, "%s", error);
    return self;
}

/* Returns [[name, seconds since 1970 when it expires], …] of the certificates in use, in their order. */
static VALUE tls_certificates(VALUE self) {
    fl_tls *tls = fl_ruby_tls_get(self);
    fl_tls_description one;
    VALUE all = rb_ary_new();
    for (size_t i = 0; fl_tls_describe(tls, i, &one); i++)
        rb_ary_push(all, rb_assoc_new(rb_utf8_str_new_cstr(one.name), LL2NUM(one.expires_at)));
    return all;
}

/* Returns the descriptor of the keys of session tickets, which stays open, or nil. */
static VALUE tls_memory(VALUE self) {
    int memory = fl_tls_memory(fl_ruby_tls_get(self));
    return memory < 0 ? Qnil : INT2FIX(memory);
}

/* rotate_tickets(seconds): if the current key is as old. */
static VALUE tls_rotate_tickets(VALUE self, VALUE seconds) {
    fl_tls_rotate_tickets(fl_ruby_tls_get(self), (uint64_t) (NUM2DBL(seconds) * 1e6));
    return Qnil;
}

void fl_init_tls(void) {
    VALUE tls = rb_define_class_under(fl_mFairlead, "TLS", rb_cObject);
    rb_define_alloc_func(tls, tls_allocate);
    rb_define_method(tls, "initialize", tls_initialize, 1);
    rb_define_method(tls, "load", tls_load, 3);
    rb_define_method(tls, "memory", tls_memory, 0);
    rb_define_method(tls, "rotate_tickets", tls_rotate_tickets, 1);
    rb_define_method(tls, "certificates", tls_certificates, 0);
    rb_define_const(tls, "AVAILABLE", FL_HAS_TLS ? Qtrue : Qfalse);
    rb_define_const(tls, "HTTP2", FL_HAS_HTTP2 ? Qtrue : Qfalse);
    eCertificate = rb_define_class_under(tls, "Error", rb_eStandardError);
    rb_gc_register_mark_object(eCertificate);
}
