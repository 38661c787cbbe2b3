/* Ranks whose small calls push serves, through the whole library over the fake: a communicator, a
 * stream and a buffer each. One thread may drive them all. */
#ifndef TRI_TESTS_NCCL_FAKE_PUSH_FIXTURE_H
#define TRI_TESTS_NCCL_FAKE_PUSH_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_push.h"
#include "tests/nccl_fake/served.h"
#include "tests/nccl_fake/streams.h"

enum {
    PUSH_PLENTY_MS = 20000,
    PUSH_LATE_MS = 150,
    PUSH_N = 40,
    PUSH_LITTLE = 1 << 20,      /* `peer_bytes`: enough for small calls */
    PUSH_ROOM = (16 << 20) - 1, /* a byte less than push has beside pull, and too little for both */
};

struct push_ranks {
    int size;
    trib_comm *comms[TRI_PUSH_RANKS];
    trib_device *devices[TRI_PUSH_RANKS];
    trib_stream streams[TRI_PUSH_RANKS];
    void *data[TRI_PUSH_RANKS];
    struct served served; /* before the last push_counts */
};

/* A case, in which devices reach each other by NVLink; at its end everything is freed. */
void push_begin(const char *name);
void push_end(void);
/* So much of it is never freed. */
void push_keep(int mappings, int blocks);

/* Of `size` ranks, on devices 0 .. size - 1, with buffers of `bytes`. Without options push is alone, with
 * PUSH_LITTLE. */
bool push_open(struct push_ranks *ranks, int size, size_t bytes, const trib_options *options);
/* Destroy the communicators; the rest of it; and both. */
void push_destroy(const struct push_ranks *ranks);
void push_drop(struct push_ranks *ranks);
void push_close(struct push_ranks *ranks);

/* Since the last time, NCCL has got `nccl` calls of ranks, and push has served `pushes` calls. */
bool push_counts(struct push_ranks *ranks, long nccl, long pushes);

/* Small numbers into the buffer of each rank; and is there their sum, `times` times over? */
void push_fill(const struct push_ranks *ranks, trib_dtype dtype, size_t count);
void push_fill_rank(const struct push_ranks *ranks, int rank, trib_dtype dtype, size_t count);
bool push_holds(const struct push_ranks *ranks, int rank, trib_dtype dtype, size_t count,
                double times);
/* All streams are done, and all ranks have the sum. */
bool push_summed(const struct push_ranks *ranks, trib_dtype dtype, size_t count);

/* A sum of `rank`, in place. */
trib_status push_sum(const struct push_ranks *ranks, int rank, size_t count, trib_dtype dtype);
/* A PUSH_N f32 sum of `rank`, in place, on another stream than its own. */
void push_sum_on(struct push_ranks *ranks, int rank, trib_stream stream);
/* PUSH_N f32 of all ranks, filled, summed and checked by this thread. */
bool push_works(const struct push_ranks *ranks);
/* `body` on a thread for each rank. */
void push_each(struct push_ranks *ranks, void (*body)(int rank, int size, void *ranks));
/* A PUSH_N f32 sum on every rank, by a thread each: NCCL may serve it. */
void push_call_rank(int rank, int size, void *ranks);

bool push_is_done(const struct push_ranks *ranks, int rank);

/* How often the log has said why NCCL serves all calls; and did it the last time with `words` (NULL:
 * any)? */
int push_refusals(const char *words);
/* The same of its large calls. */
int push_large_refusals(const char *words);
/* How often the log has said, ever, how much memory was allocated. */
int push_allocations(void);
/* So many bytes the last time. */
unsigned long push_allocated(void);

#endif
