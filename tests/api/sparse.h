/* The API of sparse allreduce: what it refuses, what it reports, and what a state goes through.
 * What the algorithms compute is the conformance suite's. */
#ifndef TRI_TESTS_API_SPARSE_H
#define TRI_TESTS_API_SPARSE_H

#include "tests/team.h"

enum { FIXTURE_COUNT = 1000 };

/* One rank's state and buffers of FIXTURE_COUNT elements of f32 each. */
struct fixture {
    struct team *team;
    int rank, size;
    trib_device *device;
    trib_stream stream;
    trib_comm *comm;
    trib_sparse *sparse;
    float *gradient, *result; /* device */
    uint32_t *index, *count;
    float given[FIXTURE_COUNT], found[FIXTURE_COUNT]; /* host */
};

/* Buffers, and a state with these options (NULL: none is made). */
bool fixture_open(struct fixture *fixture, struct team *team, int rank,
                  const trib_sparse_options *options);
void fixture_close(struct fixture *fixture);

/* `given` to the device's gradient; the device's result to `found`; both wait. */
void fixture_push(struct fixture *fixture);
void fixture_pull(struct fixture *fixture);
/* given[i] = 0 but for `n` places from `first` on, which are `value`, value + 1, ... */
void fixture_fill(struct fixture *fixture, size_t first, size_t n, float value);
/* Push, call, pull. */
trib_status fixture_call(struct fixture *fixture);
/* The word of trib_sparse_outcome. */
uint32_t fixture_outcome(struct fixture *fixture);
/* An export, in memory to be freed; *bytes of it. */
char *fixture_export(struct fixture *fixture, size_t *bytes);
trib_sparse_statistics fixture_statistics(struct fixture *fixture);

/* Options: this algorithm, this k. */
trib_sparse_options fixture_options(const char *algorithm, uint64_t k, uint32_t flags);

/* Run `body` on every rank of a fresh communicator. */
void fixture_ranks(const char *backend, int size, const trib_options *options,
                   void (*body)(int rank, int size, void *team), const char *what);

/* The parts; `size`: ranks. */
void sparse_bad(const char *backend, int size);    /* arguments, usage */
void sparse_differ(const char *backend, int size); /* ranks that do not agree */
void sparse_calls(const char *backend, int size);  /* results, statistics, non-finite, streams */
void sparse_momentum(const char *backend, int size);
void sparse_group(const char *backend, int size); /* driven by one thread */
void sparse_life(const char *backend, int size);  /* k, export, import, reset */
void sparse_end(const char *backend, int size);   /* abort, destroy */
/* A rank that does not make a call; `queues`: calls return before the other ranks make theirs, so
 * that one can lie before. */
void sparse_late(const char *backend, int size, bool queues);

#endif
