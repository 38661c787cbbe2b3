/* The conformance suite of kernel tables: pull, with all ranks of a communicator on one device. */
#include <stdlib.h>

#include "tests/conformance/kernels/pull_world.h"

enum { STAGED = 2, WAYS = 3, LONGEST = 60000, OPS = TRIB_AVG - TRIB_SUM + 1 };

static const char *const kinds[] = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                                    "alltoall"};

/* Of so many calls one is made. Under racecheck, which looks at shared memory, of which no call has
 * more than another, they take seconds each. */
static size_t thinness(const struct pull_world *w, bool quick)
{
    return getenv("TRIB_TEST_RACECHECK") != NULL ? 9 : quick || w->size > 4 ? 3 : 1;
}

/* Every way, in place and not, with any number of blocks. */
static void counts_and_ways(struct pull_world *w, trib_dtype dtype, trib_op op, bool quick)
{
    static const size_t counts[] = {1, 2, 15, 16, 17, 63, 1027, 8191, 40001};
    static const int blocks[] = {1, 2, 7, 12};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int way = 0; way < WAYS; way++) {
            const size_t turn = i + (size_t)op + (size_t)way + (size_t)w->size;
            struct pull_case c = {
                .dtype = dtype,
                .op = op,
                .count = counts[i],
                .way = way == STAGED ? (enum tri_pull_way)(i % 2) : (enum tri_pull_way)way,
                .blocks = blocks[kernels_random() % 4],
                .unmapped = way == STAGED ? (int)(turn % (size_t)w->size) : PULL_NOBODY,
                .in_place = way != TRI_PULL_ONE_SHOT && turn / 2 % 2,
                .alike = turn % 3 != 0,
                .numbers = (enum kernels_numbers)(turn % 3)};
            const size_t thin = thinness(w, quick);
            if (turn % thin != (size_t)dtype % thin)
                continue;
            if (w->size <= 3 && i % 3 == 0)
                c.blocks = 0;
            if (way == STAGED && c.way == TRI_PULL_ONE_SHOT)
                c.in_place = false;
            w->scratch_bytes = tri_pull_scratch_least(c.kind, w->size) * (turn % 2 ? 1 : 12);
            pull_call(w, &c);
        }
}

/* The other kinds in every way, in place and not. */
static void other_kinds(struct pull_world *w, trib_dtype dtype, enum tri_pull_kind kind, bool quick)
{
    static const size_t counts[] = {1, 3, 16, 20, 67, 1027, 8192, 20003};
    static const int blocks[] = {0, 1, 2, 3, 7, 12};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int staged = 0; staged < 2; staged++) {
            const size_t turn = i + 3 * (size_t)staged + (size_t)w->size + dtype;
            const struct pull_case c = {
                .dtype = dtype,
                .op = (trib_op)(TRIB_SUM + (int)(turn % OPS)),
                .count = counts[i],
                .blocks = blocks[w->size > 3 ? 1 + turn / 3 % 5 : turn / 3 % 6],
                .unmapped = staged ? (int)(turn % (size_t)w->size) : PULL_NOBODY,
                .in_place = kind != TRI_PULL_ALLTOALL && kernels_random() % 2 != 0,
                .alike = turn / 3 % 3 != 0,
                .numbers = (enum kernels_numbers)(turn / 3 % 3),
                .kind = kind,
                .root = (int)(turn / 2 % (size_t)w->size)};
            if (turn % thinness(w, quick) != 0)
                continue;
            if (c.count * (size_t)w->size > LONGEST)
                continue;
            w->scratch_bytes = tri_pull_scratch_least(c.kind, w->size) * (turn % 2 ? 1 : 12);
            pull_call(w, &c);
        }
}

/* Lists in two shots, staged or not, and of sums weighted or not. */
static void lists(struct pull_world *w, trib_dtype dtype, bool quick)
{
    static const size_t numbers[] = {1, 4, 7, 10, 28};
    static const int blocks[] = {0, 1, 3, 12};
    const bool sums = dtype == TRIB_F32 || dtype == TRIB_F64;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int way = 0; way < (sums ? 4 : 2); way++) {
            const bool staged = way % 2 != 0, weighted = way / 2 != 0;
            const size_t turn = i + 2 * (size_t)way + (size_t)w->size + dtype;
            const struct pull_case c = {
                .dtype = dtype,
                .op = weighted ? TRIB_SUM : (trib_op)(TRIB_SUM + (int)(turn % OPS)),
                .way = TRI_PULL_TWO_SHOT,
                .blocks = blocks[w->size > 3 ? 1 + turn % 3 : turn % 4],
                .unmapped = staged ? (int)(turn % (size_t)w->size) : PULL_NOBODY,
                .numbers = (enum kernels_numbers)(turn / 2 % 3),
                .slices = numbers[i],
                .weighted = weighted};
            if (turn % thinness(w, quick) != 0)
                continue;
            w->scratch_bytes = tri_pull_scratch_least(c.kind, w->size) * (turn % 2 ? 1 : 12);
            pull_call(w, &c);
        }
}

/* One rank of two, whose peer never comes: ends by the flag or by its patience, and so does what is
 * behind it. */
static void no_peer(struct pull_world *w, uint32_t flag)
{
    const struct kernels_place *place = w->arena->place;
    struct tri_pull_rank here[TRI_PULL_RANKS];
    const struct pull_case c = {.dtype = TRIB_F32, .count = 3000, .unmapped = PULL_NOBODY};
    uint32_t found = 0, over = 0;
    check_begin("%s pull without its peer, %s", place->kernels->name,
                flag != 0 ? "aborted" : "for 20 ms");
    pull_renew(w);
    w->size = 2;
    w->scratch_bytes = tri_pull_scratch_least(c.kind, w->size);
    pull_place(w, &c);
    arena_upload(w->arena);
    if (flag != 0)
        place->upload(w->abort_flag, &flag, sizeof flag);
    struct tri_pull job = pull_job(w, &c, here);
    job.n = 1;
    job.patience_ns = flag != 0 ? 0 : 20000000;
    const double began = check_now_ms();
    for (int i = 0; i < 3; i++)
        CHECK_OK(place->kernels->pull(&job, place->stream));
    place->download(&found, w->abort_flag, sizeof found);
    place->download(&over, &w->control[0]->over, sizeof over);
    const double took = check_now_ms() - began;
    CHECK_MSG(check_left_out() || found == (flag != 0 ? flag : TRI_PUSH_LATE), "the flag is %u",
              (unsigned)found);
    CHECK_MSG(check_left_out() || over == found, "over is %u", (unsigned)over);
    CHECK_MSG(check_left_out() || flag != 0 || took >= 20, "it ended after %g ms", took);
    arena_download(w->arena);
    (void)arena_compare(w->arena, w->arena->found, "pull without its peer");
    check_end();
}

void kernels_pull(struct arena *arena, bool quick)
{
    struct pull_world w;
    pull_open(&w, arena);
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++)
        for (w.size = 2; w.size <= TRI_PULL_RANKS; w.size++) {
            check_begin("%s pull %s, %d ranks", arena->place->kernels->name, trib_dtype_name(dtype),
                        w.size);
            pull_renew(&w);
            for (trib_op op = TRIB_SUM; op <= TRIB_AVG; op++)
                counts_and_ways(&w, dtype, op, quick);
            check_end();
            if (arena->place->kernels->keep != NULL) {
                check_begin("%s pull lists of %s, %d ranks", arena->place->kernels->name,
                            trib_dtype_name(dtype), w.size);
                pull_renew(&w);
                lists(&w, dtype, quick);
                check_end();
            }
            for (enum tri_pull_kind kind = TRI_PULL_REDUCE_SCATTER; kind <= TRI_PULL_ALLTOALL;
                 kind++) {
                if (tri_pull_copies(kind) && dtype % 4 != 1)
                    continue; /* it is of bytes in any type */
                check_begin("%s pull %s, %s, %d ranks", arena->place->kernels->name, kinds[kind],
                            trib_dtype_name(dtype), w.size);
                pull_renew(&w);
                other_kinds(&w, dtype, kind, quick);
                check_end();
            }
        }
    no_peer(&w, TRI_PUSH_ABORTED);
    no_peer(&w, 0);
    pull_close(&w);
}
