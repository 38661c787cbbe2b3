/* Steps: some ranks are lost, and the others go on with a communicator of their own. */
#include <string.h>

#include "tests/fuzz/api/world.h"

enum { SOON_MS = 30 };

/* What is wrong on one rank. */
enum flaw { NO_FLAW, OTHER_SET, ABSENT, NEGATIVE, ALL, SELF, BEYOND, TWICE, NO_SET, FLAWS };

struct shrinking {
    struct world *world;
    bool lost[FUZZ_RANKS];
    int remain;
    int odd; /* the rank with the flaw; -1: none */
    enum flaw flaw;
    int toggled; /* OTHER_SET: this rank is lost for the others, or for it alone */
    uint32_t timeout_ms;
    trib_comm *comms[FUZZ_RANKS];
    trib_status status[FUZZ_RANKS];
};

/* -------------------------------------------------------------------------------------- one rank */

static int32_t collect(const struct shrinking *shrinking, int r, int32_t *out)
{
    int32_t n = 0;
    for (int other = 0; other < shrinking->world->size; other++) {
        const bool toggled =
            shrinking->flaw == OTHER_SET && r == shrinking->odd && other == shrinking->toggled;
        if (shrinking->lost[other] != toggled)
            out[n++] = other;
    }
    return n;
}

/* Make the arguments wrong. */
static void spoil(const struct shrinking *shrinking, int32_t *excluded, int32_t *n)
{
    const int32_t size = shrinking->world->size;
    switch (shrinking->flaw) {
    case NEGATIVE:
        *n = -1;
        break;
    case ALL:
        *n = size;
        break;
    case SELF:
        excluded[0] = shrinking->odd;
        *n = 1;
        break;
    case BEYOND:
        excluded[0] = size;
        *n = 1;
        break;
    case TWICE:
        excluded[0] = excluded[1] = (shrinking->odd + 1) % size;
        *n = 2;
        break;
    default:
        break;
    }
}

static void shrink_rank(int r, void *argument)
{
    struct shrinking *shrinking = argument;
    int32_t excluded[FUZZ_RANKS + 1] = {0};
    const bool odd = r == shrinking->odd;
    if (shrinking->lost[r] || (odd && shrinking->flaw == ABSENT))
        return;
    int32_t n = collect(shrinking, r, excluded);
    if (odd)
        spoil(shrinking, excluded, &n);
    const bool none = odd && shrinking->flaw == NO_SET;
    shrinking->comms[r] = (trib_comm *)1;
    shrinking->status[r] =
        STATUS(trib_comm_shrink(&shrinking->comms[r], shrinking->world->ranks[r].comm,
                                none ? NULL : excluded, none ? 1 : n, shrinking->timeout_ms));
    FUZZ_CHECK((shrinking->comms[r] == NULL) == (shrinking->status[r] != TRIB_OK));
}

/* ------------------------------------------------------------------------------------- all ranks */

/* Whom the old communicator misses: those that were excluded, unless it had ended before. */
static void check_lost(const struct shrinking *shrinking, const struct rank *rank, bool had_ended)
{
    int32_t lost[FUZZ_RANKS], n = -1;
    MUST(trib_comm_lost(&n, rank->comm, lost, FUZZ_RANKS));
    FUZZ_CHECK(n >= 0 && n < shrinking->world->size);
    for (int32_t i = 0; i < n; i++) {
        FUZZ_CHECK(lost[i] >= 0 && lost[i] < shrinking->world->size);
        FUZZ_CHECK(i == 0 || lost[i] > lost[i - 1]);
        FUZZ_CHECK(had_ended || shrinking->lost[lost[i]]);
    }
    FUZZ_CHECK(had_ended || n == shrinking->world->size - shrinking->remain);
}

/* The world goes on with the ranks that remain, in their order. */
static void go_on(struct shrinking *shrinking)
{
    struct world *world = shrinking->world;
    struct rank old[FUZZ_RANKS];
    const int size = world->size;
    int place = 0, behind = shrinking->remain;
    memcpy(old, world->ranks, sizeof old);
    for (int r = 0; r < size; r++) {
        if (old[r].comm != NULL)
            world_judge_end(world, STATUS(trib_comm_destroy(old[r].comm)));
        struct rank *rank = &world->ranks[shrinking->lost[r] ? behind++ : place++];
        *rank = old[r];
        rank->comm = shrinking->comms[r];
        rank->closed = false;
    }
    trib_abort_release(world->abort);
    world->size = shrinking->remain;
    world->uneven = world->torn = world->left = false;
    world->life = WORLD_LIVE;
    MUST(trib_comm_abort_handle(&world->abort, world->ranks[0].comm));
    for (int r = 0; r < world->size; r++)
        FUZZ_CHECK(trib_comm_rank(world->ranks[r].comm) == r &&
                   trib_comm_size(world->ranks[r].comm) == world->size);
}

/* Are the arguments of the odd rank such that it alone gets an error, and has changed nothing? */
static bool is_refused(const struct shrinking *shrinking, int r)
{
    return r == shrinking->odd && shrinking->flaw >= NEGATIVE;
}

/* Does every rank that calls go on alone, and need no other? */
static bool is_alone(const struct shrinking *shrinking, int r)
{
    int32_t excluded[FUZZ_RANKS];
    return collect(shrinking, r, excluded) == shrinking->world->size - 1;
}

/* Returns how many ranks have a new communicator. */
static int judge(const struct shrinking *shrinking)
{
    const struct world *world = shrinking->world;
    int good = 0;
    for (int r = 0; r < world->size; r++) {
        const trib_status status = shrinking->status[r];
        if (shrinking->lost[r] || (r == shrinking->odd && shrinking->flaw == ABSENT))
            continue;
        fuzz_trace("  rank %d of %d: shrink is %s\n", r, world->size, trib_status_name(status));
        if (is_refused(shrinking, r))
            FUZZ_CHECK(status == TRIB_ERR_INVALID_ARGUMENT);
        else if (shrinking->odd < 0 && !world->hasty)
            FUZZ_CHECK(status == TRIB_OK);
        else if (shrinking->odd >= 0 && !is_alone(shrinking, r))
            FUZZ_CHECK(status == TRIB_ERR_TIMEOUT || status == TRIB_ERR_MISMATCH);
        else
            FUZZ_CHECK(status == TRIB_OK || status == TRIB_ERR_TIMEOUT ||
                       status == TRIB_ERR_MISMATCH);
        good += status == TRIB_OK;
    }
    return good;
}

/* Who is lost: whoever has left, and some more; not all. */
static bool choose(struct shrinking *shrinking)
{
    struct world *world = shrinking->world;
    for (int r = 0; r < world->size; r++) {
        const struct rank *rank = &world->ranks[r];
        shrinking->lost[r] = bytes_rare(world->in, 3) || rank->comm == NULL || rank->closed;
        shrinking->remain += !shrinking->lost[r];
    }
    if (shrinking->remain == 0)
        return false;
    shrinking->odd = -1;
    if (!bytes_rare(world->in, 3))
        return true;
    int which = (int)bytes_below(world->in, (uint32_t)shrinking->remain);
    for (int r = 0; r < world->size; r++)
        if (!shrinking->lost[r] && which-- == 0)
            shrinking->odd = r;
    shrinking->flaw = (enum flaw)(1 + bytes_below(world->in, FLAWS - 1));
    shrinking->toggled =
        (shrinking->odd + 1 + (int)bytes_below(world->in, FUZZ_RANKS)) % world->size;
    if (shrinking->flaw == OTHER_SET && shrinking->toggled == shrinking->odd)
        shrinking->flaw = SELF;
    if (shrinking->flaw == TWICE && world->size < 3)
        shrinking->flaw = ALL;
    shrinking->timeout_ms = SOON_MS;
    return true;
}

/* Does the rank take part in the attempt? */
static bool calls(const struct shrinking *shrinking, int r)
{
    return !shrinking->lost[r] && !is_refused(shrinking, r) &&
           !(r == shrinking->odd && shrinking->flaw == ABSENT);
}

/* An attempt has failed: a rank that had no part in it gets its result when it comes, and waits for
 * nobody. */
static void come_late(const struct shrinking *shrinking)
{
    const struct world *world = shrinking->world;
    for (int r = 0; r < world->size; r++) {
        trib_comm *none = (trib_comm *)1;
        if (calls(shrinking, r) || world->ranks[r].comm == NULL || world->ranks[r].closed)
            continue;
        const trib_status status =
            STATUS(trib_comm_shrink(&none, world->ranks[r].comm, NULL, 0, 0));
        FUZZ_CHECK(status == TRIB_ERR_TIMEOUT || status == TRIB_ERR_MISMATCH);
        FUZZ_CHECK(none == NULL);
    }
}

void step_shrink(struct world *world)
{
    struct shrinking shrinking = {.world = world};
    if (world->group != NULL || !choose(&shrinking))
        return;
    bool called = false;
    for (int r = 0; r < world->size; r++)
        called = called || calls(&shrinking, r);
    const bool had_ended = !world_is_sound(world);
    sparse_drop(world);
    fuzz_ranks(world->size, shrink_rank, &shrinking);
    const int good = judge(&shrinking);
    if (called) {
        FUZZ_CHECK(trib_abort_raised(world->abort) == 1);
        world->life = WORLD_ENDED;
        world_settle(world);
    }
    for (int r = 0; r < world->size && called && shrinking.odd < 0; r++)
        if (!shrinking.lost[r])
            check_lost(&shrinking, &world->ranks[r], had_ended);
    if (good == shrinking.remain && shrinking.odd < 0) {
        go_on(&shrinking);
        return;
    }
    if (called)
        come_late(&shrinking);
    for (int r = 0; r < world->size; r++)
        if (shrinking.comms[r] != NULL)
            world_judge_end(world, STATUS(trib_comm_destroy(shrinking.comms[r])));
}
