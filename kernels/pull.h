/* Pull: allreduce, reduce_scatter, allgather, broadcast and alltoall of large buffers among ranks of one host
 * that map each other's memory. A part of seam 2, beside push.h.
 *
 * A rank reads the parts of its peers where they lie, or, in two shots, writes its results where they are to be.
 * Which buffers a call uses travels in its first barrier, so a call takes pointers that no peer has heard of,
 * and a graph may replay it. Each peer is told where its own process has them.
 *
 * A barrier is one of twins: blocks of threads with the same index, one on each rank. Each has its turn,
 * a count of the barriers that it has been at, in the control of its own rank; as all ranks make the same
 * calls, twins count alike. Block b of rank r, at its next barrier:
 *   1. all that its threads have read has come, and they write nothing before step 3;
 *   2. with release, it stores its turn + 1 into posts[b][r] of every peer's control, or, at any but the
 *      first barrier of a call, adds 1 to the turn there, which leaves the bits beside it alone;
 *   3. it waits, with acquire, until posts[b][p] of its own control holds that much, or more, for every
 *      peer p. (More by one at most: p has gone on to the next barrier, and waits for us there.) At the
 *      first barrier it also sets TAKEN there, by a compare-and-swap: from then on it may access the
 *      buffers of p.
 *
 * A call:
 *   1. first barrier. Before its turn, each block stores the pointers of its rank into the post: those of
 *      send and recv, shifted to where the peer has mapped them, or NULL for both if a peer has not mapped
 *      what it accesses: recv of two shots, send of other calls.
 *   2. the elements, in one of two ways, or, if any rank's pointers are NULL, staged. All blocks of all ranks
 *      know the same pointers, so they choose alike. A block has a part of each rank's scratch, in two halves,
 *      for what goes in pieces: one half, then the other.
 *        one shot   if the call says so, or is no allreduce: each rank reads send of all ranks, or what of it
 *                   its result needs, and makes all of its own recv. In an allreduce no rank is in place.
 *                   Staged it goes in pieces: a block stores the piece of its own send in its own scratch, of
 *                   each block if there are blocks; a barrier; then of that piece of all ranks it makes that of
 *                   its own recv.
 *        two shot   otherwise: each rank has a share of the elements, each block one of that, in pieces. A half
 *                   has a slot for each peer. Round by round a block stores the parts that its own send has of
 *                   its twins' pieces in the slots that it has there; a barrier; then it reduces its own piece, of
 *                   its own send and the slots, into recv of all ranks. So links carry writes alone, of which
 *                   they carry more than of reads. Any rank may be in place.
 *                   Staged a half has a second slot for each peer: the result goes there, and behind the next
 *                   barrier the peer copies it to its own recv.
 *                   A rank may have its elements in tensors, in a table: no peer reads send, so it packs the parts
 *                   on their way, and its own piece to recv, before the barrier.
 *      Elements are folded in rank order, by the operations of push: the same bits on all ranks, and
 *      whichever way they went.
 *   3. last barrier.
 *
 * Why that is right.
 *   Posts. Rank r stores pointers for a call in posts[b][r] of p only if its call before has ended, hence
 *   when all blocks of r have been at that call's last barrier with their twins. Block b of p came there,
 *   or to the last barrier of the last call that had a block b, after it had read the pointers of that
 *   call. So pointers are read before they are overwritten; and they are what belongs to the turn that p
 *   waits for, because they are stored before it and released with it.
 *   In place, one shot. In a reduce_scatter recv is the block of its own send that no peer reads; in an allgather
 *   send is the block of its own recv that it does not write, and so is all of send of a root in a broadcast.
 *   Reading. A rank's block comes to the first barrier when its kernel runs, so what was queued before
 *   the call has made its send, and nobody uses its recv. Its twins access both only then.
 *   Two shot. An element has one owner, who alone writes its recv, on any rank, behind the barrier of its round:
 *   a peer has then read its send and stored it here. The owner's own send it reads first. So a rank may be in
 *   place. Its own piece of recv, which it packs, no peer writes.
 *   Pieces. A block writes a slot that it, or its twin, wrote two rounds before. In between it has been at a
 *   barrier with its twins, to which they came when they had read what was there. In its next call it writes
 *   behind the first barrier, to which a twin comes when all blocks of that rank have ended the call before:
 *   so the parts of scratch that blocks have may change.
 *   Giving up. A block that is not to wait any longer sets LEFT in its post at each peer, by an atomic or,
 *   which tells whether its twin there had set TAKEN before. If not, the twin never will, for it swaps only
 *   what has no LEFT. If so, the block waits until the twin has come to the barrier behind this one (at the
 *   last barrier, to this one), or has left as well: it accesses nothing of us afterwards (but scratch), for it
 *   passes the barrier behind this one only if we come there. So when a call has ended, in whichever way, no
 *   peer reads its send or writes its recv. All peers are told before any is waited for. (A twin whose device
 *   is lost comes to no barrier, so a GPU waits here for a second at most. That is too short for a twin
 *   that itself waits, at this barrier, for a third rank which is late by more, and has not been told to give
 *   up: in one process there is no such twin, for all have one flag; of processes each is told by the others.)
 *   Who leaves because a twin has ends only when its own flag is set as well, to TRI_STOPPED (or 200 ms after it is
 *   TRI_STOPPED_HERE: csrc/base/stopped.h), or its patience is over: in another process that may be later, and a
 *   call that ends without that has a result.
 *   A rank of which a block has left begins no other call: `over` is set before. Or a twin that is late
 *   would take the pointers of another call than its own, which may have fewer elements.
 *   End. A block passes the last barrier when its twins have come there, and they have then read all that
 *   they read of this rank, and what they wrote is released. All elements of all peers belong to some
 *   twin. So when the call has ended, its send may be overwritten, and its recv is whole.
 *
 * What it relies on:
 *   - Control and scratch are the same memory on all ranks, wherever each has mapped it; in a process they
 *     have one address on all devices, and send and recv, too, if they are mapped.
 *   - Devices have atomic operations on each other's memory, as over NVLink.
 *   - Calls of one rank are ordered as push.h says. Calls of no elements do not count.
 *   - Every rank makes the same calls in the same order: kind, root, count, dtype, op, way, blocks,
 *     scratch_bytes, and devices that have as many multiprocessors and as many ranks. So twins exist.
 *     Pointers may differ.
 *   - All blocks of a call run at once.
 *
 * After an abort, or when a rank has waited for longer than it may, calls end without a result and leave
 * control and recv as they happen to be: the communicator is over. A peer may access scratch of a rank whose
 * own call has ended: scratch and control stay until all ranks' calls have.
 * The flag and what LATE means for the result are those of push.h. */
#ifndef TRI_KERNELS_PULL_H
#define TRI_KERNELS_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/packing.h"
#include "kernels/push.h"
#include "tributary.h"

enum {
    TRI_PULL_RANKS = TRI_PUSH_RANKS,        /* at most */
    TRI_PULL_BLOCKS = 256,                  /* of a rank, at most */
    TRI_PULL_UNIT = 16,                     /* bytes that one thread moves at a time */
    TRI_PULL_LINE_BITS = 3,                 /* log2 of the next */
    TRI_PULL_LINE = 1 << TRI_PULL_LINE_BITS /* units of a line of a device's memory */
};

/* The collective. A copy (the last three) is one of bytes: its dtype is TRIB_U8, and its op is ignored. */
enum tri_pull_kind {
    TRI_PULL_ALLREDUCE,
    TRI_PULL_REDUCE_SCATTER, /* send has a block of `count` elements for each rank */
    TRI_PULL_ALLGATHER,      /* recv has one of each rank */
    TRI_PULL_BROADCAST,
    TRI_PULL_ALLTOALL /* both have blocks; never in place */
};

/* How elements of an allreduce go. Other kinds go one shot. */
enum tri_pull_way { TRI_PULL_ONE_SHOT, TRI_PULL_TWO_SHOT };

/* What a block of a peer has told its twin here. */
struct tri_pull_post {
    const void *send; /* NULL: not mapped */
    void *recv;
    uint64_t state; /* turn * TRI_PULL_TURN, and two bits */
    uint64_t unused;
};

#define TRI_PULL_TAKEN UINT64_C(1) /* the twin here accesses its buffers */
#define TRI_PULL_TURN UINT64_C(2)
#define TRI_PULL_LEFT                                                                              \
    (UINT64_C(1) << 63) /* it has left the call, and no twin may begin to access them */

/* Of each rank, in memory that all its peers map, aligned to 256. Zeros before the first call. */
struct tri_pull_control {
    uint64_t asked; /* when the abort flag was last read, in ns of the device's clock */
    uint32_t over;  /* not 0: calls end without a result */
    uint32_t unused[29];
    uint64_t turn[TRI_PULL_BLOCKS]; /* of this rank's blocks */
    struct tri_pull_post posts[TRI_PULL_BLOCKS][TRI_PULL_RANKS];
};

/* One rank of the communicator whose device is the stream's. */
struct tri_pull_rank {
    const void
        *send;  /* aligned to its element; of a broadcast's other ranks any pointer but NULL */
    void *recv; /* apart from it or, unless this is an allreduce in one shot, in place */
    bool
        mapped; /* peers' devices map what they access, as the shifts say: send, but of two shots recv */
    int rank;
    /* Of an allreduce in two shots, in place, recv aligned to 16: what is reduced is what pack_kept would put there,
     * which may hold anything. Without a table it is at send. Each rank may do as it likes, but all that have
     * a table are weighted, or none is. For kernels that know tables. */
    struct tri_packing list;
};

/* One call. `here` are the ranks that this device has, nearly always one: they wait for each other,
 * so one launch has all of them. */
struct tri_pull {
    const struct tri_pull_rank *here;
    size_t n;
    /* From where this process has send and recv to where that of each rank has them, in bytes. All 0 unless
     * ranks are in processes of their own; then n is 1. */
    ptrdiff_t send_shift[TRI_PULL_RANKS], recv_shift[TRI_PULL_RANKS];
    struct tri_pull_control *control[TRI_PULL_RANKS]; /* of each rank */
    void *scratch
        [TRI_PULL_RANKS]; /* of each rank, aligned to 16; no need of it in one shot if all are mapped */
    size_t scratch_bytes; /* of one rank: at least tri_pull_scratch_least */
    int size;             /* ranks: 2 to TRI_PULL_RANKS */
    int blocks; /* of a rank, at most, or twice as many of half the size; 0: as many as are best */
    enum tri_pull_kind kind;
    int root;     /* of a broadcast */
    size_t count; /* elements; of a block, if there are blocks */
    trib_dtype dtype;
    trib_op op;
    enum tri_pull_way way;
    uint32_t *abort_flag; /* pinned; as push's, of the ranks of this process */
    uint64_t patience_ns; /* who has waited for longer stores TRI_PUSH_LATE there; 0: for ever */
};

/* Bytes of half of the part of scratch that one of `blocks` blocks has: whole lines, where that leaves one for each
 * slot that there may be. */
static inline size_t tri_pull_half(size_t scratch_bytes, uint32_t blocks)
{
    const size_t units = scratch_bytes / 2 / blocks / TRI_PULL_UNIT;
    const bool lines = units >= (size_t)TRI_PULL_LINE * 2 * TRI_PULL_RANKS;
    return (lines ? units / TRI_PULL_LINE * TRI_PULL_LINE : units) * TRI_PULL_UNIT;
}

static inline size_t tri_pull_unit_elements(trib_dtype dtype)
{
    return TRI_PULL_UNIT / trib_dtype_size(dtype);
}

static inline bool tri_pull_copies(enum tri_pull_kind kind)
{
    return kind >= TRI_PULL_ALLGATHER;
}

/* Has send a block for each rank? */
static inline bool tri_pull_scatters(enum tri_pull_kind kind)
{
    return kind == TRI_PULL_REDUCE_SCATTER || kind == TRI_PULL_ALLTOALL;
}

/* Has recv a block of each rank? */
static inline bool tri_pull_gathers(enum tri_pull_kind kind)
{
    return kind == TRI_PULL_ALLGATHER || kind == TRI_PULL_ALLTOALL;
}

/* Blocks of send. */
static inline int tri_pull_blocks_sent(enum tri_pull_kind kind, int size)
{
    return tri_pull_scatters(kind) ? size : 1;
}

/* Elements of a rank's send. */
static inline size_t tri_pull_sent(const struct tri_pull *call)
{
    return call->count * (size_t)tri_pull_blocks_sent(call->kind, call->size);
}

/* And of its recv. */
static inline size_t tri_pull_received(const struct tri_pull *call)
{
    return tri_pull_gathers(call->kind) ? call->count * (size_t)call->size : call->count;
}

static inline bool tri_pull_is_two_shot(const struct tri_pull *call)
{
    return call->kind == TRI_PULL_ALLREDUCE && call->way == TRI_PULL_TWO_SHOT;
}

/* As many of `n` for each of `of`. On devices, too. */
TRI_ANYWHERE size_t tri_pull_share(size_t n, size_t of)
{
    return (n + of - 1) / of;
}

/* What pieces and shares are made of, if slots have room for `room` units: a line where one fits, for half a line
 * takes a link as long; or a unit. log2 of its units, for a kernel begins with it: no quotients. */
TRI_ANYWHERE int tri_pull_grain(size_t room)
{
    return room < TRI_PULL_LINE ? 0 : TRI_PULL_LINE_BITS;
}

TRI_ANYWHERE size_t tri_pull_grains(size_t units, int grain)
{
    return (units + ((size_t)1 << grain) - 1) >> grain;
}

/* Units of a piece if there are `units`, and `blocks` blocks whose slots have room for `room`: in as few
 * rounds as there must be, and all but the last piece are alike. */
TRI_ANYWHERE size_t tri_pull_evenly(size_t units, size_t blocks, size_t room)
{
    const int grain = tri_pull_grain(room);
    const size_t grains = tri_pull_grains(units, grain);
    const size_t rounds = tri_pull_share(grains, blocks * (room >> grain));
    return tri_pull_share(grains, blocks * rounds) << grain;
}

/* Units of the share of each of `size` ranks in two shots; the last ranks may have fewer. */
TRI_ANYWHERE size_t tri_pull_rank_share(size_t units, size_t size, size_t room)
{
    const int grain = tri_pull_grain(room);
    return tri_pull_share(tri_pull_grains(units, grain), size) << grain;
}

/* Slots of a half, one for a piece: one for each block of send; or, of two shots, for each peer's part, and staged
 * for each peer's result. */
static inline size_t tri_pull_slots(const struct tri_pull *call, bool staged)
{
    if (tri_pull_is_two_shot(call))
        return (size_t)(call->size - 1) * (staged ? 2 : 1);
    return (size_t)tri_pull_blocks_sent(call->kind, call->size);
}

/* Two halves of one unit of each slot, for every block of threads; more makes calls in pieces faster. */
static inline size_t tri_pull_scratch_least(enum tri_pull_kind kind, int size)
{
    const int slots =
        kind == TRI_PULL_ALLREDUCE ? 2 * (size - 1) : tri_pull_blocks_sent(kind, size);
    return (size_t)2 * TRI_PULL_BLOCKS * TRI_PULL_UNIT * (size_t)slots;
}

/* Units of a slot. */
static inline size_t tri_pull_room(const struct tri_pull *call, uint32_t blocks, bool staged)
{
    return tri_pull_half(call->scratch_bytes, blocks) / TRI_PULL_UNIT /
           tri_pull_slots(call, staged);
}

/* Units that are divided into pieces, if slots have room for `room`: of a block of send, or two shot, of a rank.
 * There the first unit of a rank is where its buffer is aligned, which may make one more of them. */
static inline size_t tri_pull_units(const struct tri_pull *call, size_t room)
{
    const size_t units = tri_pull_share(call->count, tri_pull_unit_elements(call->dtype));
    return tri_pull_is_two_shot(call) ? tri_pull_rank_share(units, (size_t)call->size, room)
                                      : units;
}

/* Elements of a piece, if no unit is cut. */
static inline size_t tri_pull_piece(const struct tri_pull *call, uint32_t blocks, bool staged)
{
    const size_t room = tri_pull_room(call, blocks, staged);
    return tri_pull_evenly(tri_pull_units(call, room), blocks, room) *
           tri_pull_unit_elements(call->dtype);
}

#endif
