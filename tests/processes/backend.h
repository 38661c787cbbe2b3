/* The backend "processes", for tests: host, with the ranks of a communicator in several processes.
 * Its table stands in place of csrc/backends.c.
 *
 * Ranks meet in memory that the processes share: a copy through it is their connection. As on nccl,
 * an abort ends the waits of its own process and no others, the end of a process ends no wait, and
 * calls that differ wait for each other until an abort. A communicator has up to 8 ranks; several
 * in one process are threads. */
#ifndef TRI_TESTS_PROCESSES_BACKEND_H
#define TRI_TESTS_PROCESSES_BACKEND_H

#include <stddef.h>
#include <sys/types.h>

#include "tests/check.h"
#include "tests/children.h"

enum { PROCESSES_IDS = 32, PROCESSES_MEETINGS = 64 };

/* Run `body(index, n, argument)` in n new processes, whose ranks can meet; the parent must not have
 * used the library. out[0..n): how they have ended. After `deadline_ms` they are killed. */
void processes_run(struct child_end *out, int n, int deadline_ms,
                   void (*body)(int index, int n, void *argument), void *argument);

/* The ranks of the children that this process forks from now on can meet: for a program that forks. */
void processes_begin(void);

/* The same as processes_run; check that all have ended well, but for `killed`, which SIGKILL has ended. */
void processes_check_killed(int killed, int n, int deadline_ms,
                            void (*body)(int index, int n, void *argument), void *argument);
/* Nobody is killed. */
void processes_check(int n, int deadline_ms, void (*body)(int index, int n, void *argument),
                     void *argument);

/* In the processes: an id that all have without telling each other, 0 <= which < PROCESSES_IDS; one
 * communicator each. trib_id_create makes others. */
trib_id processes_id(int which);
/* The process of that index. */
pid_t processes_pid(int index);
/* This process sees n devices, as one does whose launcher gives each process its own. */
void processes_devices(int32_t n);
/* Wait until n threads are at this meeting. Each number is used once. */
void processes_meet(int meeting, int n);

#endif
