/* Opening files below a folder. */
#include "platform.h"

#include <limits.h>
#include <string.h>
#ifdef FL_LINUX
#include <sys/syscall.h>
#endif

enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

/* Follows no symbolic links. */
static int open_step_by_step(int folder, const char *path) {
    char name[NAME_MAX + 1];
    int current = folder;
    for (;;) {
        const char *end = strchr(path, '/');
        size_t size = end == NULL ? strlen(path) : (size_t) (end - path);
        int next = -1;
        errno = ENOENT;
        if (size > 0 && size < sizeof name && !(path[0] == '.' && (size == 1 || (size == 2 && path[1] == '.')))) {
            memcpy(name, path, size);
            name[size] = 0;
            next = openat(current, name, FLAGS | O_NOFOLLOW | (end == NULL ? 0 : O_DIRECTORY));
        }
        int error = errno;
        if (current != folder)
            close(current);
        errno = error;
        if (next < 0 || end == NULL)
            return next;
        current = next;
        path = end + 1;
    }
}

#if defined(FL_LINUX) && defined(SYS_openat2)
int fl_open_beneath(int folder, const char *path) {
    const struct {
        uint64_t flags, mode, resolve;
    } how = {FLAGS, 0, 0x02 /* RESOLVE_NO_MAGICLINKS */ | 0x08 /* RESOLVE_BENEATH */};
    int descriptor = (int) syscall(SYS_openat2, folder, path, &how, sizeof how);
    if (descriptor < 0 && (errno == ENOSYS || errno == EPERM)) /* an old kernel, or a sandbox */
        return open_step_by_step(folder, path);
    return descriptor;
}
#else
int fl_open_beneath(int folder, const char *path) {
    return open_step_by_step(folder, path);
}
#endif
