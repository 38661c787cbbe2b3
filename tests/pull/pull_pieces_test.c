/* How pull divides a call: its pieces fit, leave nothing out, are whole lines, and no more than there must be. */
#include "kernels/pull.h"
#include "tests/check.h"

enum { LINE = TRI_PULL_LINE * TRI_PULL_UNIT }; /* bytes */

static const uint32_t blocks[] = {1, 64, 66, 128, 192, TRI_PULL_BLOCKS};
static const size_t counts[] = {1, 7, 1000, 4097, ((size_t)1 << 20) + 3, 25557032, (size_t)1 << 28};
/* The least that a call may have, as a lane of the nccl backend, and beside them. */
static const size_t scratches[] = {0, 100003, (16 << 20) - (128 << 10), (16 << 20) + 16};

enum {
    BLOCKS = sizeof blocks / sizeof *blocks,
    COUNTS = sizeof counts / sizeof *counts,
    SCRATCHES = sizeof scratches / sizeof *scratches
};

static struct tri_pull call_of(enum tri_pull_kind kind, enum tri_pull_way way, int size,
                               size_t count, size_t scratch)
{
    const size_t least = tri_pull_scratch_least(kind, size);
    return (struct tri_pull){.scratch_bytes = scratch < least ? least : scratch,
                             .size = size,
                             .kind = kind,
                             .count = count,
                             .dtype = tri_pull_copies(kind) ? TRIB_U8 : TRIB_F32,
                             .way = way};
}

/* By `b` blocks, of pieces of `piece` units. */
static size_t rounds_of(size_t units, size_t b, size_t piece)
{
    return (units + b * piece - 1) / (b * piece);
}

static void divided(const struct tri_pull *call, uint32_t b, bool staged)
{
    const size_t elements = tri_pull_unit_elements(call->dtype);
    const size_t room = tri_pull_room(call, b, staged), slots = tri_pull_slots(call, staged);
    const size_t units = tri_pull_units(call, room);
    const size_t piece = tri_pull_piece(call, b, staged) / elements;
    const size_t half = tri_pull_half(call->scratch_bytes, b);
    const size_t share = tri_pull_is_two_shot(call) ? (size_t)call->size : 1;
    CHECK(piece > 0 && piece * slots * TRI_PULL_UNIT <= half);
    CHECK(2 * b * half <= call->scratch_bytes);
    CHECK(units * share * elements >= call->count);
    if (room < TRI_PULL_LINE) {
        CHECK(rounds_of(units, b, piece) == rounds_of(units, b, room));
        return;
    }
    const size_t whole = room / TRI_PULL_LINE * TRI_PULL_LINE;
    CHECK(rounds_of(units, b, piece) <= rounds_of(units, b, whole));
    CHECK(piece * TRI_PULL_UNIT % LINE == 0);
    if (share > 1)
        CHECK(units * TRI_PULL_UNIT % LINE == 0);
    if (half >= (size_t)LINE * 2 * TRI_PULL_RANKS)
        CHECK(half % LINE == 0);
}

static void all_counts(enum tri_pull_kind kind, enum tri_pull_way way, int size, size_t scratch)
{
    for (int c = 0; c < COUNTS; c++) {
        const struct tri_pull call = call_of(kind, way, size, counts[c], scratch);
        for (int b = 0; b < BLOCKS; b++) {
            divided(&call, blocks[b], false);
            divided(&call, blocks[b], true);
        }
    }
}

static void all(enum tri_pull_kind kind, enum tri_pull_way way, const char *name)
{
    check_begin("the pieces of %s", name);
    for (int size = 2; size <= TRI_PULL_RANKS; size++)
        for (int s = 0; s < SCRATCHES; s++)
            all_counts(kind, way, size, scratches[s]);
    check_end();
}

int main(void)
{
    all(TRI_PULL_ALLREDUCE, TRI_PULL_TWO_SHOT, "an allreduce in two shots");
    all(TRI_PULL_ALLREDUCE, TRI_PULL_ONE_SHOT, "an allreduce in one");
    all(TRI_PULL_REDUCE_SCATTER, TRI_PULL_ONE_SHOT, "a reduce_scatter");
    all(TRI_PULL_ALLGATHER, TRI_PULL_ONE_SHOT, "an allgather");
    return check_finish("pull_pieces_test");
}
