/* Forked children that make checks. The parent only starts them and waits; it must not have used
 * the library, so that the children may. Every wait is bounded: a child that hangs is killed. */
#ifndef TRI_TESTS_CHILDREN_H
#define TRI_TESTS_CHILDREN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { CHILDREN_MAX = 16, CHILDREN_MEETING_MS = 20000 };

/* How a child has ended. */
struct child_end {
    int code;   /* of its exit: 0 if its checks have passed and it leaks nothing; -1: none */
    int signal; /* that killed it; 0: none */
    bool late;  /* it ran past the deadline, and the parent has killed it */
};

/* Zeroed memory that this process shares with its children. */
void *children_share(size_t bytes);
void children_unshare(void *data, size_t bytes);

/* Run `body(index, n, argument)` in n processes; out[0..n): how they have ended. */
void children_run(struct child_end *out, int n, int deadline_ms,
                  void (*body)(int index, int n, void *argument), void *argument);
/* Check that the child has ended well. Its own lines say what failed. */
bool children_check(const struct child_end *end, int index);
/* The same of all n but `killed` (-1: nobody), which SIGKILL has ended before the deadline. */
void children_check_killed(const struct child_end *ends, int n, int killed);
/* children_run, and check that all have ended well. */
void children_run_all(int n, int deadline_ms, void (*body)(int index, int n, void *argument),
                      void *argument);

/* In children: count one more at `arrived`, in shared memory, and wait until there are n. It begins
 * at 0 and serves once. */
void children_meet(_Atomic int *arrived, int n);

#endif
