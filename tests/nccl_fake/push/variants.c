/* Variants by name: each serves what it can, of any size, with the same result, and refuses the rest before
 * anything is queued. */
#include <string.h>

#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { RANKS = 2, FEW = 1000, VARIANTS = TRIB_VARIANT_TWO_SHOT + 1 };
/* More than were measured, with room for pull. */
enum { MANY_RANKS = 5, MOST_RANKS = 8, MANY_ROOM = 64 << 20 };

/* One call of all ranks. */
struct asked {
    struct push_ranks *ranks;
    trib_variant variant;
    size_t count;
    bool in_place, scaled, batched, unstaged;
    trib_status status;
    const char *says;
};

/* The rank's result: in its buffer, or behind the elements there. */
static float *result_of(const struct asked *asked, int rank)
{
    float *data = asked->ranks->data[rank];
    return asked->in_place ? data : data + LARGE_N;
}

static void ask_rank(int rank, int size, void *argument)
{
    const struct asked *asked = argument;
    trib_comm *comm = asked->ranks->comms[rank];
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    (void)size;
    options.variant = asked->variant;
    options.flags =
        (asked->scaled ? TRIB_CALL_FACTOR : 0) | (asked->unstaged ? TRIB_CALL_UNSTAGED : 0);
    options.factor = 1;
    if (asked->batched)
        CHECK_OK(trib_batch_begin(comm));
    CHECK_STATUS(trib_allreduce_with(comm, asked->ranks->data[rank], result_of(asked, rank),
                                     asked->count, TRIB_F32, TRIB_SUM, &options,
                                     asked->ranks->streams[rank]),
                 asked->status);
    if (asked->status != TRIB_OK) {
        CHECK_DETAIL(trib_variant_name(asked->variant));
        CHECK_DETAIL(asked->says);
    }
    if (asked->batched)
        CHECK_STATUS(trib_batch_end(comm), asked->status);
}

/* It is served, by whom the counts say. */
static void served(struct push_ranks *ranks, trib_variant variant, size_t count, bool in_place,
                   bool scaled)
{
    struct asked asked = {
        .ranks = ranks, .variant = variant, .count = count, .in_place = in_place, .scaled = scaled};
    const bool pulled = variant == TRIB_VARIANT_ONE_SHOT || variant == TRIB_VARIANT_TWO_SHOT;
    const long one_shot = fake_pulls().one_shot;
    push_fill(ranks, TRIB_F32, count);
    check_ranks(ranks->size, ask_rank, &asked);
    for (int rank = 0; rank < ranks->size; rank++) {
        CHECK_OK(trib_comm_wait(ranks->comms[rank], ranks->streams[rank], PUSH_PLENTY_MS));
        if (variant == TRIB_VARIANT_NCCL)
            continue; /* the fake's moves nothing */
        if (!in_place)
            memmove(ranks->data[rank], result_of(&asked, rank), count * sizeof(float));
        push_holds(ranks, rank, TRIB_F32, count, 1);
    }
    CHECK_MSG(large_counts(ranks, variant == TRIB_VARIANT_NCCL ? ranks->size : 0,
                           variant == TRIB_VARIANT_PUSH, pulled, 0),
              "%s of %zu", trib_variant_name(variant), count);
    CHECK(fake_pulls().one_shot - one_shot == (variant == TRIB_VARIANT_ONE_SHOT));
}

/* It is not, on any rank. */
static void refused(struct push_ranks *ranks, struct asked asked, const char *says)
{
    asked.ranks = ranks;
    asked.status = TRIB_ERR_UNSUPPORTED;
    asked.says = says;
    check_ranks(ranks->size, ask_rank, &asked);
    CHECK(large_counts(ranks, 0, 0, 0, 0));
}

static void by_name(const char *what, int size, uint64_t room)
{
    struct push_ranks ranks;
    push_begin(what);
    if (large_open(&ranks, size, room)) {
        for (trib_variant variant = TRIB_VARIANT_NCCL; variant < VARIANTS; variant++) {
            served(&ranks, variant, FEW, false, false);
            if (variant != TRIB_VARIANT_ONE_SHOT)
                served(&ranks, variant, FEW, true, false);
            if (variant != TRIB_VARIANT_PUSH)
                served(&ranks, variant, LARGE_N, false, false);
        }
        served(&ranks, TRIB_VARIANT_NCCL, FEW, true, true);
        push_close(&ranks);
    }
    push_end();
}

static void what_they_refuse(void)
{
    struct push_ranks ranks;
    push_begin("what a variant refuses");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        refused(&ranks, (struct asked){.variant = TRIB_VARIANT_PUSH, .count = LARGE_N},
                "small enough");
        refused(&ranks,
                (struct asked){.variant = TRIB_VARIANT_ONE_SHOT, .count = FEW, .in_place = true},
                "in place");
        for (trib_variant variant = TRIB_VARIANT_PUSH; variant < VARIANTS; variant++)
            refused(&ranks, (struct asked){.variant = variant, .count = FEW, .scaled = true},
                    "factor");
        for (trib_variant variant = TRIB_VARIANT_NCCL; variant < VARIANTS; variant++)
            refused(&ranks, (struct asked){.variant = variant, .count = FEW, .batched = true},
                    "batch");
        served(&ranks, TRIB_VARIANT_TWO_SHOT, FEW, true, false); /* the communicator is as it was */
        push_close(&ranks);
    }
    push_end();
}

/* Without pull's memory there is push, and without any there is NCCL. */
static void without_memory(void)
{
    static const struct {
        const char *what;
        int size;
        uint64_t room;
    } all[] = {{"variants without pull", RANKS, PUSH_ROOM},
               {"variants of many ranks without pull", MANY_RANKS, MANY_ROOM - 1},
               {"variants without peers", RANKS, TRIB_NO_PEERS}};
    struct push_ranks ranks;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        push_begin(all[i].what);
        if (large_open(&ranks, all[i].size, all[i].room)) {
            refused(&ranks, (struct asked){.variant = TRIB_VARIANT_TWO_SHOT, .count = LARGE_N},
                    "64 MiB");
            if (all[i].room == TRIB_NO_PEERS)
                refused(&ranks, (struct asked){.variant = TRIB_VARIANT_PUSH, .count = FEW},
                        "reach each other");
            else
                served(&ranks, TRIB_VARIANT_PUSH, FEW, false, false);
            served(&ranks, TRIB_VARIANT_NCCL, FEW, true, false);
            push_close(&ranks);
        }
        push_end();
    }
}

/* One rank has nothing to send: any variant will do. */
static void alone(void)
{
    struct push_ranks ranks;
    push_begin("variants of one rank");
    if (large_open(&ranks, 1, 0)) {
        struct asked asked = {.ranks = &ranks, .count = FEW, .in_place = true};
        for (int i = 0; i < 2 * VARIANTS; i++) {
            asked.variant = i / 2;
            asked.unstaged = i % 2 != 0;
            push_fill(&ranks, TRIB_F32, FEW);
            check_ranks(1, ask_rank, &asked);
            CHECK(push_summed(&ranks, TRIB_F32, FEW));
        }
        push_close(&ranks);
    }
    push_end();
}

void push_variants(void)
{
    by_name("variants by name", RANKS, LARGE_ROOM);
    by_name("variants by name of many ranks", MANY_RANKS, MANY_ROOM);
    by_name("variants by name of the most ranks", MOST_RANKS, MANY_ROOM);
    what_they_refuse();
    alone();
    without_memory();
    alone();
}
