/* Intrusive doubly linked lists. `before` and `after` are the names of the items' link members. Macros, since the item types differ. */
#ifndef FL_LIST_H
#define FL_LIST_H

#include <stddef.h>

/* Lists without a tail: `head` points at the first item. */
#define FL_LIST_PUSH(head, item, before, after)                                                                \
    do {                                                                                                       \
        (item)->after = (head);                                                                                \
        if ((head) != NULL)                                                                                    \
            (head)->before = (item);                                                                           \
        (head) = (item);                                                                                       \
    } while (0)

#define FL_LIST_UNLINK(head, item, before, after)                                                              \
    do {                                                                                                       \
        if ((item)->before != NULL)                                                                            \
            (item)->before->after = (item)->after;                                                             \
        else                                                                                                   \
            (head) = (item)->after;                                                                            \
        if ((item)->after != NULL)                                                                             \
            (item)->after->before = (item)->before;                                                            \
        (item)->before = NULL;                                                                                 \
        (item)->after = NULL;                                                                                  \
    } while (0)

/* Lists with a tail: `list` has `first` and `last`. */
#define FL_LIST_APPEND(list, item, before, after)                                                              \
    do {                                                                                                       \
        (item)->after = NULL;                                                                                  \
        (item)->before = (list)->last;                                                                         \
        if ((list)->last != NULL)                                                                              \
            (list)->last->after = (item);                                                                      \
        else                                                                                                   \
            (list)->first = (item);                                                                            \
        (list)->last = (item);                                                                                 \
    } while (0)

#define FL_LIST_REMOVE(list, item, before, after)                                                              \
    do {                                                                                                       \
        if ((item)->after == NULL)                                                                             \
            (list)->last = (item)->before;                                                                     \
        FL_LIST_UNLINK((list)->first, item, before, after);                                                    \
    } while (0)

#endif
