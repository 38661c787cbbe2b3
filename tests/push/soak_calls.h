/* A call of push amid many, as all ranks make it: drawn, queued, looked at. */
#ifndef TRI_TESTS_PUSH_SOAK_CALLS_H
#define TRI_TESTS_PUSH_SOAK_CALLS_H

#include <stdatomic.h>

#include "tests/push/gpus.h"

struct soak;

enum {
    SOAK_TYPES = 4,
    SOAK_INPUTS = 4,        /* of each type */
    SOAK_BYTES = GPUS_MOST, /* of the largest call */
    SOAK_SMALL = 1 << 10,   /* of the largest small one */
    SOAK_BATCH = 64         /* calls between two looks at the results */
};

/* One thread's. Memory is allocated before the first call of any rank: CUDA may wait, to allocate, for
 * a kernel that waits for this rank. */
struct soak_thread {
    struct soak *soak;
    int rank;
    uint64_t common, own; /* two rows of random numbers: one that all ranks have */
    unsigned char *out, *found;
};

/* What all threads share: the inputs, and what they give. */
struct soak {
    struct gpus *gpus;
    int calls;
    struct soak_thread threads[TRI_PUSH_RANKS];
    unsigned char *sums[SOAK_TYPES][SOAK_INPUTS], *parts[TRI_PUSH_RANKS][SOAK_TYPES][SOAK_INPUTS];
    unsigned char
        *inputs[TRI_PUSH_RANKS][SOAK_TYPES][SOAK_INPUTS]; /* the parts on the rank's device */
    _Atomic int ready;
    _Atomic bool stopped;
};

/* A call, as all ranks make it. */
struct soak_call {
    int type, input;
    size_t first, count; /* elements of the input */
    size_t at;           /* byte of the batch's results */
    enum tri_push_kind kind;
    int root;
};

/* The next of a row of random numbers. */
uint64_t soak_draw(uint64_t *row);

void soak_open(struct soak *s, struct gpus *gpus, int calls);
void soak_close(struct soak *s);
/* As threads begin: all ranks are to make the same calls. */
struct soak_thread *soak_begin(struct soak *s, int rank);

/* A call whose result is at byte `at` of the batch's, or a few bytes behind: mostly a few elements,
 * sometimes many; any alignment that the type allows. In place: of a kind that may be. */
struct soak_call soak_random_call(struct soak_thread *t, size_t at, bool in_place);
/* The same of an allreduce of at most SOAK_SMALL bytes. */
struct soak_call soak_small_call(struct soak_thread *t, size_t at);
trib_dtype soak_dtype(const struct soak_call *call);
/* Blocks of the larger buffers, and the bytes of each. */
size_t soak_blocks(const struct soak_thread *t, const struct soak_call *call);
size_t soak_block_bytes(const struct soak_call *call);
/* Behind it in a batch's results, whether it is in place or not. */
size_t soak_end_of(const struct soak_thread *t, const struct soak_call *call);

/* The call from `send` to `recv`, or from its input to its place in the batch. */
void soak_queue(struct soak_thread *t, const struct soak_call *call, const void *send, void *recv);
void soak_queue_call(struct soak_thread *t, const struct soak_call *call);
/* Its result is at byte `at` of what has been fetched. */
void soak_check(struct soak_thread *t, const struct soak_call *call, size_t at);

#endif
