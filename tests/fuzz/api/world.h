/* The ranks that a program of calls drives, and what their memory should hold.
 *
 * One thread makes the calls of all ranks, so that one input is one behaviour, except where a call
 * waits for the other ranks (creation, splits, sparse states, TRIB_MATCH): then each rank has a
 * thread. Every rank has one allocation, and the world computes beside the library what is in it.
 * When all queued work has run, world_settle compares the two. */
#ifndef TRI_TESTS_FUZZ_WORLD_H
#define TRI_TESTS_FUZZ_WORLD_H

#include "tests/fuzz/fuzz.h"

enum {
    ARENA = 4096,
    STREAMS = 2,
    SPARSE_COUNT = 120 /* the most elements of a sparse state */
};

enum life {
    WORLD_LIVE,   /* valid calls succeed */
    WORLD_ENDING, /* an abort races with the calls, or a rank has left: they succeed or not */
    WORLD_ENDED   /* an abort came before: no call succeeds */
};

struct rank {
    trib_comm *comm; /* NULL in a group, and once it is destroyed */
    int32_t ordinal;
    trib_device *device;
    trib_stream streams[1 + STREAMS]; /* the first is NULL, the default stream */
    trib_event event;
    uint8_t *memory; /* ARENA bytes of the device */
    uint8_t *shadow; /* what they hold once everything queued has run */
    bool *touched;   /* which of them calls since the last comparison may write */
    int last;        /* the stream that used them last */
    bool closed;
    trib_sparse *sparse;
};

struct kept; /* host memory that queued copies read */

struct world {
    struct bytes *in;
    struct rank ranks[FUZZ_RANKS];
    int size;
    trib_group *group; /* NULL: the ranks have communicators */
    trib_abort *abort;
    uint32_t flags;
    bool hasty;  /* deadlines are short, and a rank may be missing */
    bool uneven; /* ranks have queued different calls: a stream may wait until the end */
    bool left;   /* a rank has closed */
    bool torn;   /* ranks have queued calls that do not match: the status will say so */
    enum life life;
    uint64_t seed;
    bool debug; /* the debug switch */
    struct kept *kept;
    /* Of the state that the ranks hold, if any. */
    struct {
        size_t count;
        trib_dtype dtype, result;
        uint32_t flags;
        double decay, momentum;
        bool wire;  /* values are rounded on it */
        bool exact; /* a call's result and residuals are the sum of gradients and residuals */
        double velocity[FUZZ_RANKS][SPARSE_COUNT]; /* not in place; NaN: not known */
    } sparse;
    struct {
        uint8_t *data[FUZZ_RANKS]; /* kept */
        size_t bytes[FUZZ_RANKS], count;
        bool f64, residual, has_velocity;
        double velocity[FUZZ_RANKS][SPARSE_COUNT];
    } saved; /* exports of it */
};

/* Ranks, memory and streams as the input says; then the end of it all, in any state. */
void world_open(struct world *world, struct bytes *in);
void world_close(struct world *world);
/* After that, and after the library's background work: it holds no memory on the devices. */
void world_check_freed(void);
/* Of the current communicators, for the deadlines and flags that the world has. */
trib_options world_options(const struct world *world);

/* Wait for all streams, unless they may wait for ever, and compare the memory: all of it, or after
 * an end what no call has touched. */
void world_settle(struct world *world);

/* The stream of this step: it runs after what used the rank's memory on other streams. */
trib_stream world_stream(struct world *world, int rank, int stream);
/* Host memory that lives as long as the world. */
void *world_keep(struct world *world, size_t bytes);
/* Queue a copy to byte `at` of the rank's memory. */
void world_fill(struct world *world, int rank, size_t at, const void *data, size_t bytes,
                trib_stream stream);
/* A call will write these bytes. NULL: nobody knows what, and world_adopt must follow, once the call
 * has run, unless the world has ended. */
void world_result(struct world *world, int rank, size_t at, const void *data, size_t bytes);
void world_adopt(struct world *world, int rank, size_t at, size_t bytes);

/* body(rank, argument) for every rank: on threads if `waits` or with TRIB_MATCH, else in turn. */
void world_each(struct world *world, bool waits, void (*body)(int rank, void *argument),
                void *argument);

/* What one step's call returned on every rank, and whether its arguments were valid there. */
struct verdicts {
    trib_status status[FUZZ_RANKS];
    bool valid[FUZZ_RANKS];
    bool differs;   /* the ranks' calls are valid, and not the same */
    bool unmatched; /* sends and receives, which TRIB_MATCH does not compare */
};
/* Judge them, and note what the world is now. True if the call counts: all ranks have queued the
 * same. */
bool world_judge(struct world *world, const struct verdicts *verdicts);
/* Can nothing end the communicator? */
static inline bool world_is_sound(const struct world *world)
{
    return world->life == WORLD_LIVE && !world->uneven && !world->torn && !world->hasty;
}

/* May rank r's call have been queued? A call that an abort overtook says so, and may run. */
static inline bool world_may_write(const struct verdicts *verdicts, int r)
{
    return verdicts->valid[r] && !fuzz_is_mistake(verdicts->status[r]);
}
/* The same for calls in which all ranks agree on the end: all succeed or none, and a rank whose
 * arguments are invalid makes the call fail on every rank. True if it succeeded. */
bool world_judge_handshake(struct world *world, const struct verdicts *verdicts);
/* May a call that waits for all ranks be made now? */
bool world_can_wait(struct world *world);
/* The end of a communicator that the caller asked for: is the status one that it may have? */
void world_judge_end(const struct world *world, trib_status status);

/* The steps. */
void step_collective(struct world *world);
void step_vectored(struct world *world);
void step_exchange(struct world *world);
void step_barrier(struct world *world);
void step_list(struct world *world);
void step_streams(struct world *world);
void step_queries(struct world *world);
void step_life(struct world *world);
void step_shrink(struct world *world);
void step_sparse(struct world *world);
/* Of step_sparse: destroy the states; make a call with them. */
void sparse_drop(struct world *world);
void sparse_call(struct world *world);
static inline bool world_sparse_in_place(const struct world *world)
{
    return (world->sparse.flags & TRIB_SPARSE_IN_PLACE) != 0;
}
/* Is there a residual besides the caller's buffer? And a velocity? */
static inline bool world_sparse_residual(const struct world *world)
{
    return !world_sparse_in_place(world) || world->sparse.momentum != 0;
}
static inline bool world_sparse_velocity(const struct world *world)
{
    return !world_sparse_in_place(world) && world->sparse.momentum != 0;
}

#endif
