/* Background threads for cleanup that may take long, so that no caller waits for it. The threads
 * exist before they are needed: posting a job starts no thread, allocates nothing and does not
 * wait. */
#ifndef TRI_NCCL_BACKGROUND_H
#define TRI_NCCL_BACKGROUND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/status.h"

/* Something to release. Embedded in what it releases, so that posting allocates nothing. */
struct tri_nccl_job {
    /* NULL, or the part of an abort that runs inside an open NCCL group: abort every rank that has
     * a handle by now, and return true once no call is in flight. Called again until it returns
     * true. Never waits. */
    bool (*prepare)(struct tri_nccl_job *job);
    /* NULL, or what comes between: no call is in flight, no graph of the job lives, and the group is
     * still open. Returns for how many milliseconds to wait after it. */
    uint32_t (*settle)(struct tri_nccl_job *job);
    /* Runs after that group has ended. May wait for long, and may free the job. */
    void (*finish)(struct tri_nccl_job *job);
    /* NULL, or the number of live CUDA graphs for which the end of that group would wait. The group
     * stays open while there are any. Never waits; makes no CUDA call. */
    uint32_t (*graphs)(const struct tri_nccl_job *job);
    /* NULL, or the number of calls inside NCCL that only the owner of an adopted communicator can end:
     * its own, and those of children that a split of it makes. The same holds for them. */
    uint32_t (*calls)(const struct tri_nccl_job *job);
    /* The end of that group may wait for ever: no other job shares it, if a thread can be started. */
    bool alone;
    int32_t device; /* current during prepare and finish */

    /* When prepare had returned true, and when settle began; 0 before. Any thread
     * reads them. */
    _Atomic uint64_t prepared_ns, freeing_ns;

    /* Private to background.c. */
    struct tri_nccl_job *next;
    bool prepared;
};

/* Take a reference: background threads exist while anyone holds one. Fails if no thread can be
 * started. Release each reference once. */
trib_status tri_nccl_background_retain(void);
void tri_nccl_background_release(void);

/* Any thread may call it; the caller holds a reference. (Without one it tries to start a thread; if
 * that fails, the job waits for the next retain.) */
void tri_nccl_post_job(struct tri_nccl_job *job);

/* The result of some job's `graphs` has changed. Any thread, also one of CUDA's. */
void tri_nccl_wake_jobs(void);

/* Wait until every posted job has ended, but those that are parked, at most until
 * `deadline_ns`. Give up early when no job ends for 2 s (a kernel that does not end), and then do
 * not wait again until one does.
 *
 * Opening a communicator calls this first. NCCL frees memory with calls that wait until the device
 * is idle, and meanwhile hold a driver lock that many other CUDA calls take. If the device runs a
 * collective by then, and the thread that should make the peer's call, or abort, needs that lock,
 * all wait for ever. */
void tri_nccl_await_jobs(uint64_t deadline_ns);

/* The number of jobs that have not ended; `*out_ended`: the number that ever have. */
uint32_t tri_nccl_jobs(uint64_t *out_ended);
/* The number of live graphs for which jobs wait. */
uint32_t tri_nccl_jobs_graphs(void);

/* If there is no reference and no job, ask the threads to end, and return true. */
bool tri_nccl_background_stop(void);

#endif
