/* A fake of CUDA and NCCL: enough of both to run the lifecycle of the nccl backend (open, split,
 * abort, close) on a machine without a GPU, and under sanitizers. It moves no data between ranks, unless it is
 * asked to.
 *
 * It behaves as observed of NCCL 2.28.9: an init or a first call waits for the peers inside the
 * call; ncclCommAbort in an open group raises flags, and frees when the group ends; only the last
 * local rank frees. It ends the program when the backend does what NCCL would not survive: freeing
 * a communicator while a call is in flight on it, using it after that, or aborting it twice. */
#ifndef TRI_TESTS_NCCL_FAKE_H
#define TRI_TESTS_NCCL_FAKE_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

enum { FAKE_DEVICES = 8, FAKE_RANKS = 16, FAKE_MULTIPROCESSORS = 132 };

/* ------------------------------------------------------------------------------ for the tests */

/* The arguments of the last ncclRedOpCreatePreMulSum: the element's bytes, 0 beyond them; and its
 * address if it lies on the device, NULL if it came from the host. */
struct fake_factor {
    int type; /* ncclDataType_t */
    unsigned char element[8];
    const void *on_device;
};
struct fake_factor fake_last_factor(void);

/* What NCCL was last told of a new communicator, created or split. */
struct fake_config {
    int min_ctas, max_ctas, cta_policy; /* NCCL_CONFIG_UNDEF_INT: nothing */
    char network[80], name[80];         /* "": nothing */
};
struct fake_config fake_last_config(void);

/* Communicators not freed yet. */
int fake_communicators(void);
/* How often the ranks of a communicator, more than one, were freed while the proxy thread of one of
 * them ran. It ends soon after its rank has been finalized. */
int fake_freed_early(void);
/* How often a rank has been finalized, aborted or destroyed. */
struct ncclComm;
int fake_ends(struct ncclComm *comm);
/* While true, reductions (u8, u32, f32; sum, average, max of what is not negative; of f32 sums with
 * factors), an allgather and a broadcast wait inside the call for all ranks, and move their data, and
 * a receive waits for its message, in a group for all of them at its end: each rank needs a thread of
 * its own. */
void fake_move_data(bool moves);
/* The version that NCCL says it has; 0: that of its header. */
void fake_version(int code);
/* From now on, NCCL's answer to queries of the asynchronous errors of rank `rank`, and to its
 * collectives. */
void fake_async_error(int rank, int result);
/* While true, these queries themselves fail, and answer nothing. */
void fake_fail_async_query(bool fails);
/* From now on, rank `rank` of what is created is in that process, which is 0 unless something else is
 * said: the ranks of a process are freed together. */
void fake_process(int rank, int process);
/* While true, a CUDA graph that captured every communicator is alive: nothing can be freed. */
void fake_keep_graph(bool alive);
/* Begin and end the capture of a stream by a new graph, or by the graph of another stream that is
 * in capture (as after a wait for an event of that one). Destroying the graph calls what it retained
 * on another thread, which may make no CUDA call. While a graph that captured a call lives, nothing
 * frees the communicator, an abort included. CUDA's own functions do all that, too; a launch repeats
 * what was recorded: copies, collectives whose data the fake moves, and what a test records. */
struct fake_graph;
struct fake_graph *fake_capture_begin(cudaStream_t stream);
void fake_capture_join(cudaStream_t stream, struct fake_graph *graph);
void fake_capture_end(cudaStream_t stream);
void fake_graph_destroy(struct fake_graph *graph);
/* The threads that wait inside NCCL for graphs, and the objects that graphs retain. */
int fake_waiting_for_graphs(void);
int fake_user_objects(void);
/* While held, calls of this kind wait inside; FAKE_EVENT: no event completes; FAKE_PROBE: queries of
 * events; FAKE_RECLAIM: no communicator is freed; FAKE_FINALIZE: what was queued has not begun, which
 * an abort does not end either; FAKE_MAPPING: no memory that devices could map is made; FAKE_WINDOW: no
 * window is. */
enum fake_call {
    FAKE_FREE,
    FAKE_HOST_ALLOC,
    FAKE_QUERY,
    FAKE_EVENT,
    FAKE_PROBE,
    FAKE_RECLAIM,
    FAKE_FINALIZE,
    FAKE_MAPPING,
    FAKE_WINDOW,
    FAKE_CALLS
};
void fake_hold(enum fake_call call, bool held);
/* Of the events that are recorded from the first such call on, `n` have completed; -1: all have. */
void fake_pass_events(long n);
/* The number of threads that wait inside such calls now. */
int fake_waiting(enum fake_call call);
/* Devices reach each other's memory from now on, by NVLink or by PCI Express. Before the first call
 * none does. */
void fake_reach(bool reaches, bool by_nvlink);
/* While hidden, a thread on which another device is current, or none, knows no device of this one's name, and
 * gets no answer about it and another one. */
void fake_hide(int device, bool hidden);
/* What makes mappings, exports or imports them, or gives a device access to another: of the calls from
 * now on, number `n` (0 is the next) fails; -1: none. */
void fake_fail_mapping(int n);
/* What was created, reserved or mapped for several devices, and is there yet. */
int fake_mappings(void);
/* What mapped memory is a multiple of; of twice as much on device FAKE_COARSE. */
enum { FAKE_GRANULARITY = 1 << 16, FAKE_COARSE = 7 };
/* Calls of collectives, sends and receives that NCCL has got. */
long fake_nccl_calls(void);
/* Windows that there are; and allreduces whose buffers both lie in some. From now on the calls of that rank fail
 * that register memory, or end a window; -1: those of none. */
int fake_windows(void);
long fake_window_calls(void);
void fake_fail_windows(int rank);
/* On this device no stream can be made; -1: on each. */
void fake_fail_streams(int device);
/* How often a stream was made to wait for an event. */
long fake_event_waits(void);
/* Events that were made and not destroyed; and how many more can be made, -1: any number. */
int fake_events(void);
void fake_allow_events(int n);
/* Allocated blocks of memory; and of the allocations from now on, number `n` (0 is the next) fails; -1: none. */
int fake_blocks(void);
void fake_fail_blocks(int n);
/* From now on it is memory of a pool, which peer access does not open: of its device's default pool, or of
 * one that is the device's alone. */
void fake_pool(const void *data, bool is_default);
/* Devices have pools, none of which is open to another device, or none. Before the first call they have. */
void fake_have_pools(bool has);
/* The device has `n` multiprocessors; 0: FAKE_MULTIPROCESSORS; -1: CUDA does not tell. */
void fake_set_multiprocessors(int device, int n);
/* How often the driver has been asked about an address. */
long fake_pointer_queries(void);
/* How often CUDA has been asked for a stream's device or capture. */
long fake_stream_queries(void);
/* While true, a thread captures a graph in global mode. fake_spoiled counts the calls, made outside
 * relaxed mode, that invalidated the capture. */
void fake_capture(bool captures);
int fake_spoiled(void);
/* A call that invalidates a capture, of another thread or of this one. The lock is not held. */
void fake_need_relaxed(void);
/* The result of waits for streams and events and of queries about them; 0: the true one. */
void fake_fail_wait(int error);
/* While true, no event can be recorded. */
void fake_fail_record(bool fails);
/* While true, the driver makes no context current. */
void fake_fail_current(bool fails);
/* While true, CUDA tells that a stream is captured, but not by which graph. */
void fake_fail_capture_info(bool fails);
/* While true, no user object can be made. */
void fake_fail_user_objects(bool fails);
/* While true, ncclCommAbort works but returns an error. */
void fake_fail_abort(bool fails);
/* While false, no thread can be started. */
void fake_allow_threads(bool allowed);
/* The context of this device cannot be created; call it before anything has used the device. -1:
 * every context can. */
void fake_break(int device);
/* The driver's answer to questions about streams and addresses; CUDA_SUCCESS: the true one. */
void fake_query_result(int result);
/* The stream that recorded the event for which `stream` was last made to wait. */
cudaStream_t fake_after(cudaStream_t stream);
/* The device that is current on this thread, or -1; and choosing it, as another library would. */
int fake_current(void);
void fake_make_current(int device);

/* --------------------------------------------------------------- between fake_cuda and fake_nccl
 */

/* The fake's only lock: guards everything in its files. `fake_changed` is broadcast whenever the
 * condition of a wait may have become true. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;
void fake_wait(void);                /* for a change; the lock is held */
void fake_pass(enum fake_call call); /* wait while it is held; the lock is held */

/* Misuse: print `what` and exit. */
void fake_die(const char *what) __attribute__((noreturn));

/* Work that waits for other ranks: operation `sequence` of rank `rank` of `world`. */
struct fake_world;
bool fake_done(const struct fake_world *world, int rank, long sequence); /* the lock is held */
/* Queue it on `stream`, which is not NULL. The lock is held. */
void fake_queue(cudaStream_t stream, struct fake_world *world, int rank, long sequence);
int fake_stream_device(cudaStream_t stream);
/* If a graph captures the stream, each launch of it will run `run` with a copy of `argument`. */
bool fake_record(cudaStream_t stream, void (*run)(void *argument), const void *argument,
                 size_t bytes);
/* Queue work on the stream, or have each launch of the graph do so that captures it. `run` is called
 * under the lock, when all before it has ended: at once, if nothing waits. */
struct fake_work_kind;
void fake_submit(cudaStream_t stream, const struct fake_work_kind *kind, const void *argument,
                 size_t bytes);
void fake_run(cudaStream_t stream, void (*run)(void *argument), const void *argument, size_t bytes);
/* Does the device reach all of these bytes, mapped as one or one behind the other? The lock is held. */
bool fake_reaches(int device, const void *begin, size_t bytes);
/* These bytes, all mapped as one, where the fake itself has them: the same place for all that map them. NULL:
 * they are not mapped. The lock is held. */
void *fake_home(const void *begin, size_t bytes);
/* May the device access these bytes, which cudaMalloc or a pool has made all at once, or which are mapped? The
 * lock is held. */
bool fake_may_access(int device, const void *begin, size_t bytes);
/* The graph that captures the stream, or NULL; and make it call `gone` when it is destroyed. The
 * lock is held. */
struct fake_graph *fake_capturing(cudaStream_t stream);
void fake_graph_retain(struct fake_graph *graph, cudaHostFn_t gone, void *argument);

#endif
