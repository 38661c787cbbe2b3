/* Push: collectives of small buffers among ranks that map each other's memory. A part of seam 2.
 *
 * Each rank has scratch memory that all its peers can write. A rank stores its part of a call straight
 * into every peer's scratch, and reads only its own. No rank waits for permission, and nobody waits
 * at a barrier: what has arrived says so itself.
 *
 * Scratch is two buffers of size - 1 slots, one for each peer, whose data arrives there, in rank order, of
 * `capacity` chunks of 16 bytes. A chunk holds granules. A granule is either EMPTY, every bit 1, or full.
 *
 *   float granules, 4 bytes (f16, bf16, f32)   the elements themselves. All bits 1 is a NaN, or two
 *       NaNs of 16 bits: a sender whose granule looks like that clears its highest bit. It is NaN
 *       still, and nothing else is changed: zeros keep their sign, other NaNs their bits.
 *   wide granules, 8 bytes (f64, integers)     4 bytes of the elements, and 4 bytes of zeros.
 *
 * What a rank sends to a peer in a call, its part, depends on the kind:
 *
 *   allreduce        all of `send`, to every peer
 *   reduce_scatter   block p of `send`, to peer p
 *   two shot         see below
 *   allgather        all of `send`, to every peer
 *   broadcast        all of `send`, from the root to every peer; nothing, from the others
 *   alltoall         block p of `send`, to peer p
 *
 * Copies, which are the last three, take bytes: their granules are wide, so every bit arrives
 * as it was. A rank whose part is nothing sends the granules of one chunk, which are zeros.
 *
 * Two shot is an allreduce of which each rank reduces a share: the chunks of `send` are divided over the
 * ranks, the first `each` to rank 0 and so on, behind the last chunk none. Self's part for peer p is, in the
 * first `each` chunks of the slot, p's share of `send`, and in the next `each` chunks self's share of the
 * result. So a rank sends 2 / size of a tensor to each peer instead of all of it.
 *
 * A call, on the rank `self`, with the epoch e that its control holds; b = e mod 2:
 *   1. every worker (a block of threads, on a GPU) reads e from the control, and at any time after
 *      that counts itself there; whoever is the last of the call to do so makes the epoch e + 1;
 *   2. every granule of self's part for a peer is stored into self's slot of buffer b of that peer;
 *   3. every granule of every peer's part, in its slot in buffer b of self's own scratch, is read until
 *      it is full, and then EMPTY is stored in its place;
 *   4. the parts of all ranks, self's own as a peer would have it, are reduced in rank order, or are
 *      copied to where they belong.
 * Two shot, that is done with the shares of `send` first: who has reduced a chunk of self's share keeps it as a
 * peer will have it, and stores it into every peer's slot, as in 2; once that is done with the share, the shares
 * of the result are read as in 3, and copied.
 *
 * Why that is right. In each call each rank pushes at least one granule to each peer, and a peer reads
 * exactly those that were pushed to it: both know the kind, the root and the count. Let r push in epoch
 * e + 2 into a granule of p that it pushed into in epoch e; if it did not, look at the last such epoch,
 * or at none, for nobody has touched the granule since.
 *   r has ended its call of epoch e + 1, so it has read a granule that p pushed in epoch e + 1.
 *   p had then begun epoch e + 1, so its call of epoch e had ended: it had read r's part of epoch e
 *   and made the granule EMPTY. Hence a granule is EMPTY whenever it is pushed into; it is read full
 *   once for each time that it is pushed into, and as what was pushed; and what p does not find full
 *   is not there yet, but on its way. With one buffer p need only have begun e, and r would overwrite.
 *   If nothing were pushed where a part is nothing, a root would end one broadcast after the other
 *   without its peers, and overwrite. (Two shot has enough chunks for all shares but one. So of two ranks one
 *   has a share: the other one pushes its part of that, and gets the result of it.)
 *
 * What it relies on:
 *   - A granule is read and stored as one: 4 bytes, or 8. (The PTX memory model gives that to every
 *     aligned scalar access, and takes a vector for as many scalars in no order. So granules of a
 *     chunk, which are stored as one vector, may arrive one by one, and each is looked at by itself.)
 *   - Granules are accessed by strong operations of system scope.
 *   - Two calls of one rank are ordered, first to last: all that the first has stored in its own memory
 *     is there before anything that the second stores can be seen. Kernels of one stream are, also in
 *     a graph, and kernels of two streams with an event between them. Of a programmatic launch, only
 *     what comes behind griddepcontrol.wait is: that waits until the kernels before have completed and
 *     all their memory operations are performed (PTX ISA).
 *   - Every rank makes the same calls in the same order. Calls of no elements do not count.
 *   - All workers of a call run at once, or every one runs in time: none waits for one that may only
 *     start when it has ended.
 * How many workers a call has, and which of them moves what, may differ between calls and ranks.
 *
 * After an abort, or when a rank has waited for longer than it may, calls end without a result and
 * leave scratch and control as they happen to be: the communicator is over. A rank sends before it
 * waits, so where one has given up another may have the result: whoever sees TRI_PUSH_LATE ends the
 * communicator before anybody believes a result of this call. */
#ifndef TRI_KERNELS_PUSH_H
#define TRI_KERNELS_PUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tributary.h"

/* Of a function for host and device. */
#ifdef __CUDACC__
#  define TRI_ANYWHERE static inline __host__ __device__
#else
#  define TRI_ANYWHERE static inline
#endif

enum {
    TRI_PUSH_RANKS = 8,         /* at most */
    TRI_PUSH_CHUNK = 16,        /* bytes */
    TRI_PUSH_EMPTY_BYTE = 0xff, /* every byte of scratch before the first call */
    TRI_PUSH_EPOCH = 1 << 16    /* what one epoch adds to `turn` */
};

enum tri_push_kind {
    TRI_PUSH_ALLREDUCE,
    TRI_PUSH_REDUCE_SCATTER,
    TRI_PUSH_TWO_SHOT,  /* an allreduce for which tri_push_can_share holds */
    TRI_PUSH_ALLGATHER, /* a copy */
    TRI_PUSH_BROADCAST, /* a copy */
    TRI_PUSH_ALLTOALL   /* a copy; never in place */
};

/* Values of an abort flag, beside those of csrc/base/stopped.h, of which the first is TRI_STOPPED. LATE replaces none
 * of them: jobs with patience are those of trials, whose ranks are in one process or have a flag of their own. */
enum { TRI_PUSH_ABORTED = 1, TRI_PUSH_LATE = 2 };

/* What a rank's calls hand on, in memory of its device. Zeros before the first call. */
struct tri_push_control {
    uint64_t asked; /* when the abort flag was last read, in ns of the device's clock */
    uint32_t turn;  /* epoch * TRI_PUSH_EPOCH + workers of this call that have counted themselves */
    uint32_t over;  /* not 0: calls end without a result */
};

/* One rank of the communicator whose device is the stream's. */
struct tri_push_rank {
    const void
        *send;  /* aligned to its element; not used where a broadcast has its root elsewhere */
    void *recv; /* apart from it, or in place: the same pointer; of an allgather the one whose
                       * block `rank` is send; of a reduce_scatter block `rank` of send */
    struct tri_push_control *control;
    int rank;
};

/* One call. `here` are the ranks that this device has, nearly always one: they wait for each other,
 * so one launch has all of them. */
struct tri_push {
    const struct tri_push_rank *here;
    size_t n;
    void *scratch[TRI_PUSH_RANKS]; /* of each rank, at its address on this device; aligned to 16 */
    int size;                      /* ranks: 2 to TRI_PUSH_RANKS */
    size_t capacity; /* chunks of a slot, tri_push_slot_chunks() or more; of a scratch below 2^32 */
    size_t count;    /* of elements that one rank sends to another */
    trib_dtype dtype; /* of a copy TRIB_U8 */
    trib_op op;       /* not of a copy */
    enum tri_push_kind kind;
    int root;             /* of a broadcast */
    uint32_t *abort_flag; /* pinned; 0 as long as nothing has gone wrong, and never 0 again */
    uint64_t patience_ns; /* who has waited for longer stores TRI_PUSH_LATE there; 0: for ever */
};

/* Are granules of this type wide? */
static inline bool tri_push_is_wide(trib_dtype dtype)
{
    return dtype > TRIB_F32;
}

/* Bytes of elements in a chunk. */
static inline size_t tri_push_payload(trib_dtype dtype)
{
    return tri_push_is_wide(dtype) ? TRI_PUSH_CHUNK / 2 : TRI_PUSH_CHUNK;
}

/* Chunks that `count` elements take. */
static inline size_t tri_push_chunks(size_t count, trib_dtype dtype)
{
    const size_t payload = tri_push_payload(dtype);
    return (count * trib_dtype_size(dtype) + payload - 1) / payload;
}

/* Two shot: are there enough chunks for all shares but one; and chunks of a share. (With c chunks and each =
 * ceil(c / size) the last share but one begins at (size - 2) * each, which is less than c if
 * 2 c > (size - 1) (size - 2).) */
static inline bool tri_push_can_share(size_t count, trib_dtype dtype, int size)
{
    return 2 * tri_push_chunks(count, dtype) > (size_t)(size - 1) * (size_t)(size - 2);
}

static inline size_t tri_push_each(const struct tri_push *job)
{
    return (tri_push_chunks(job->count, job->dtype) + (size_t)job->size - 1) / (size_t)job->size;
}

/* Chunks of a slot that a call takes. */
static inline size_t tri_push_slot_chunks(const struct tri_push *job)
{
    return job->kind == TRI_PUSH_TWO_SHOT ? 2 * tri_push_each(job)
                                          : tri_push_chunks(job->count, job->dtype);
}

/* Which of the slots of rank `owner` is that of `from`, another rank. */
TRI_ANYWHERE int tri_push_place(int owner, int from)
{
    return from < owner ? from : from - 1;
}

/* Where that slot of buffer epoch mod 2 begins in the owner's scratch, in chunks. */
static inline size_t tri_push_slot(const struct tri_push *job, uint32_t epoch, int owner, int from)
{
    const size_t slots = (size_t)job->size - 1, place = (size_t)tri_push_place(owner, from);
    return ((size_t)(epoch & 1) * slots + place) * job->capacity;
}

/* Elements of what rank `from` sends to another. */
static inline size_t tri_push_part(const struct tri_push *job, int from)
{
    return job->kind == TRI_PUSH_BROADCAST && from != job->root ? 0 : job->count;
}

/* Chunks that it sends: one also of nothing. */
static inline size_t tri_push_part_chunks(const struct tri_push *job, int from)
{
    const size_t part = tri_push_part(job, from);
    return part == 0 ? 1 : tri_push_chunks(part, job->dtype);
}

/* Has `send` a block for each rank? */
static inline bool tri_push_scatters(enum tri_push_kind kind)
{
    return kind == TRI_PUSH_REDUCE_SCATTER || kind == TRI_PUSH_ALLTOALL;
}

/* Has `recv` a block of each rank? */
static inline bool tri_push_gathers(enum tri_push_kind kind)
{
    return kind == TRI_PUSH_ALLGATHER || kind == TRI_PUSH_ALLTOALL;
}

static inline bool tri_push_copies(enum tri_push_kind kind)
{
    return kind >= TRI_PUSH_ALLGATHER;
}

static inline size_t tri_push_scratch_bytes(int size, size_t capacity)
{
    return 2 * ((size_t)size - 1) * capacity * TRI_PUSH_CHUNK;
}

#endif
