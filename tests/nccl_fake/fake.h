/* A stand-in for CUDA and NCCL: enough of both to run the life of the nccl backend (open, split,
 * abort, close) on a machine without a GPU, and under sanitizers. It moves no data between ranks.
 *
 * It behaves as NCCL 2.28.9 was seen to: an init or a first call waits for the peers, inside the
 * call; ncclCommAbort in an open group raises flags and frees at the group's end; only the last
 * local rank frees. And it ends the program when the backend does what NCCL would not survive: a
 * communicator freed while a call is inside it, or used after that, or aborted twice. */
#ifndef TRI_TESTS_NCCL_FAKE_H
#define TRI_TESTS_NCCL_FAKE_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

enum { FAKE_DEVICES = 8, FAKE_RANKS = 16 };

/* ------------------------------------------------------------------------------ for the tests */

/* What the last ncclRedOpCreatePreMulSum was given: the element, as its bytes, 0 beyond them; and
 * where it lies if that is on the device, NULL if it came from the host. */
struct fake_factor {
    int type; /* ncclDataType_t */
    unsigned char element[8];
    const void *on_device;
};
struct fake_factor fake_last_factor(void);

/* Communicators not freed yet. */
int fake_communicators(void);
/* What NCCL says from now on when it is asked for the asynchronous errors of rank `rank`. */
void fake_async_error(int rank, int result);
/* While true, a CUDA graph is alive that captured every communicator: nothing can be freed. */
void fake_keep_graph(bool alive);
/* While held, calls of this kind wait inside; FAKE_EVENT: no event passes; FAKE_RECLAIM: no
 * communicator is freed. */
enum fake_call { FAKE_FREE, FAKE_HOST_ALLOC, FAKE_QUERY, FAKE_EVENT, FAKE_RECLAIM, FAKE_CALLS };
void fake_hold(enum fake_call call, bool held);
/* How many threads wait inside such calls now. */
int fake_waiting(enum fake_call call);
/* Blocks of memory that are allocated. */
int fake_blocks(void);
/* While true, some thread captures a graph in global mode. How often it was spoiled: by a call, not
 * in relaxed mode, that must not be made then. */
void fake_capture(bool captures);
int fake_spoiled(void);
/* What waits for streams and events, and questions about them, return; 0: the truth. */
void fake_fail_wait(int error);
/* While true, no event can be recorded. */
void fake_fail_record(bool fails);
/* The driver makes no context current. */
void fake_fail_current(bool fails);
/* While true, ncclCommAbort does what it does and says that it failed. */
void fake_fail_abort(bool fails);
/* While false, no thread can be started. */
void fake_allow_threads(bool allowed);
/* The context of this device cannot be made; before anything has used it. -1: every one can. */
void fake_break(int device);
/* The stream on which the event was recorded for which `stream` was last made to wait. */
cudaStream_t fake_after(cudaStream_t stream);
/* The device that is current on this thread, or -1; and to choose it, as another library would. */
int fake_current(void);
void fake_make_current(int device);

/* --------------------------------------------------------------- between fake_cuda and fake_nccl
 */

/* The one lock of the fake: guards everything in both files. `fake_changed` is broadcast whenever
 * something that others wait for may have become true. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;
void fake_wait(void); /* for a change; the lock is held */
void fake_pass(enum fake_call call); /* while it is held, wait; the lock is held */

/* Misuse: say what and end. */
void fake_die(const char *what) __attribute__((noreturn));

/* Work that waits for others: operation `sequence` of rank `rank` of `world`. */
struct fake_world;
bool fake_done(const struct fake_world *world, int rank, long sequence); /* the lock is held */
/* Queue it on `stream`, which is not NULL. The lock is held. */
void fake_queue(cudaStream_t stream, struct fake_world *world, int rank, long sequence);
int fake_stream_device(cudaStream_t stream);

#endif
