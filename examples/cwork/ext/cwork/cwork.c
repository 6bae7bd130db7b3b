/*
 * What a badly behaved, and a well behaved, C extension does to a server: both block their thread for some
 * seconds; one keeps Ruby's global VM lock (GVL) meanwhile, the other releases it. A third one computes with the lock.
 */
#include <ruby.h>
#include <ruby/thread.h>
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

static struct timespec
now_plus(double seconds)
{
    struct timespec end;
    long nanoseconds;

    clock_gettime(CLOCK_MONOTONIC, &end);
    nanoseconds = end.tv_nsec + (long)((seconds - (time_t)seconds) * 1e9);
    end.tv_sec += (time_t)seconds + nanoseconds / 1000000000L;
    end.tv_nsec = nanoseconds % 1000000000L;
    return end;
}

/* Returns NULL at the end, else the argument: a signal came first. */
static void *
block_until(void *end)
{
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, end, NULL) == EINTR ? end : NULL;
}

static VALUE
cwork_with_gvl(VALUE self, VALUE seconds)
{
    struct timespec end = now_plus(NUM2DBL(seconds));

    while (block_until(&end)) {
    }
    return seconds;
}

/* The same while there is a file at `path`, for so many seconds at most. It makes the file: whoever finds it knows that no other thread
 * runs. */
static VALUE
cwork_with_gvl_while(VALUE self, VALUE path, VALUE seconds)
{
    const char *name = StringValueCStr(path);
    struct timespec now, next, end = now_plus(NUM2DBL(seconds));
    int file = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

    if (file < 0)
        rb_sys_fail(name);
    close(file);
    do {
        next = now_plus(0.03);
        while (block_until(&next)) {
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (access(name, F_OK) == 0 && now.tv_sec < end.tv_sec);
    return Qnil;
}

/* Ruby cannot interrupt it: no other thread runs meanwhile. */
static VALUE
cwork_computes_with_gvl(VALUE self, VALUE seconds)
{
    struct timespec now, end = now_plus(NUM2DBL(seconds));

    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    return seconds;
}

static VALUE
cwork_without_gvl(VALUE self, VALUE seconds)
{
    struct timespec end = now_plus(NUM2DBL(seconds));

    /* Ruby interrupts the sleep with a signal; a killed thread leaves from check_ints. */
    while (rb_thread_call_without_gvl(block_until, &end, RUBY_UBF_IO, NULL)) {
        rb_thread_check_ints();
    }
    return seconds;
}

RUBY_FUNC_EXPORTED void
Init_cwork(void)
{
    VALUE cwork = rb_define_module("Cwork");

    rb_define_module_function(cwork, "with_gvl", cwork_with_gvl, 1);
    rb_define_module_function(cwork, "with_gvl_while", cwork_with_gvl_while, 2);
    rb_define_module_function(cwork, "computes_with_gvl", cwork_computes_with_gvl, 1);
    rb_define_module_function(cwork, "without_gvl", cwork_without_gvl, 1);
}
