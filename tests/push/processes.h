/* Processes with a rank and a GPU each, which reach each other's memory: what their tests have in common. */
#ifndef TRI_TESTS_PUSH_PROCESSES_H
#define TRI_TESTS_PUSH_PROCESSES_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tributary.h"

enum {
    PROCESSES_MAX = 8,
    MEASURED = 4,    /* ranks: with more, over NVLink, pull serves by name alone */
    CALLS = 64,      /* whose results are looked at together */
    MOST = 1 << 13,  /* elements of a rank's part */
    LARGE = 3 << 19, /* and of a large call: 6 MiB, which are pull's with up to 4 ranks */
    DEADLINE_MS = 120000,
    PLENTY_MS = 60000
};

/* Which GPUs a process sees, by CUDA_VISIBLE_DEVICES. */
enum sight {
    SEES_ALL,
    SEES_OWN,
    SEES_TURNED /* all; every other process in the reverse order */
};

/* What the processes of a case share. */
struct shared {
    trib_id id;
    int rounds, gpus;
    enum sight sight;
    bool captured;      /* calls are captured, and replayed */
    bool reach, nvlink; /* the GPUs do; over NVLink */
    uint32_t flags;     /* of the communicator's options */
    _Atomic int made, met;
};

struct rank {
    const struct shared *shared;
    int rank, size;
    trib_comm *comm;
    cudaStream_t stream;
    uint32_t *send, *recv; /* size * MOST; CALLS of these */
    uint32_t *image;       /* of recv */
};

/* A machine with GPUs. */
struct machine {
    int gpus;
    int fewest;         /* processes to begin with: 2, or as many as share a GPU */
    bool reach, nvlink; /* each GPU every other one; over NVLink */
};

/* The same numbers in all processes that begin with the same `state`. */
uint32_t draw(uint64_t *state);

/* Element `i` of what the rank sends; and of the sum of all ranks. */
uint32_t input(int rank, size_t i);
uint32_t sum_of(int size, size_t i);

/* By a child, `index` of `n`: a communicator, buffers, a stream; send is filled. */
bool open_rank(struct rank *r, struct shared *shared, int index, int n);
void close_rank(struct rank *r);
/* Elements of a rank's send. */
size_t slot(const struct rank *r);

/* Memory of this rank that the others reach; and calls so far in which a buffer of it went through that. */
uint64_t peer_bytes(const struct rank *r);
uint64_t staged_calls(const struct rank *r);

/* Does pull serve calls by its name; and large ones of any memory without? */
bool pulls_by_name(const struct rank *r);
bool has_pull(const struct rank *r);

/* Make the calls that `queue` queues on the rank's stream. Where a case has them captured, they become a graph,
 * which runs `times` times, and this waits. */
void make_calls(const struct rank *r, int times,
                void (*queue)(const struct rank *r, const void *calls), const void *calls);

/* Microseconds of the call that `queue` queues, one of many at once. Waits. */
double time_calls(trib_comm *comm, cudaStream_t stream, void (*queue)(const void *call),
                  const void *call);
/* The same of a sum of LARGE f32 in place. */
double time_sum(trib_comm *comm, cudaStream_t stream, void *data, trib_variant variant);

/* Asks in a child, because a process that has used CUDA may not fork. */
struct machine look_at_machine(void);
/* A case of `size` processes that run `body` with a struct shared; `what` it is named. */
void run_case(const struct machine *machine, const char *what,
              void (*body)(int index, int n, void *argument), int size, int rounds,
              enum sight sight, bool captured);

#endif
