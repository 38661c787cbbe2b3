/* What every sparse allreduce must do: the walk over the parts of the suite. */
#include "tests/conformance/sparse/sparse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const sparse_algorithms[] = {"dense",           "topka",       "topka2", "topkaopt",
                                         "topksa",          "gtopk",       "oktopk", "gaussiank",
                                         "gaussiankconcat", "gaussianksa", "srs",    "shared",
                                         "chunked",         "hier",        NULL};

#define EIGHT(n) n, n, n, n, n, n, n, n
const int32_t sparse_hosts_each[TEAM_MAX] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
const int32_t sparse_hosts_turns[TEAM_MAX] = {
    1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0,
    1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0};
const int32_t sparse_hosts_uneven[TEAM_MAX] = {
    907, 12, 12, 3, 3, 3, 4, 4, 4, 4, 5,        5, 5,        5,  5,  6,         6,         6,
    6,   6,  6,  7, 7, 7, 7, 7, 7, 7, EIGHT(8), 9, EIGHT(9), 10, 10, EIGHT(10), EIGHT(11), 11};

enum sparse_depth sparse_depth(void)
{
    return getenv("TRIB_TEST_QUICK") == NULL ? SPARSE_WHOLE : SPARSE_QUICK;
}

/* -------------------------------------------------------------------------------------- cases */

static bool usable(const struct team *team)
{
    for (int rank = 0; rank < team->size; rank++)
        if (team_has(team, rank) &&
            (team->comms[rank] == NULL || trib_comm_status(team->comms[rank]) != TRIB_OK))
            return false;
    return true;
}

/* A team apart stays as it is: its processes have no other id. */
static void mend(struct team *team)
{
    if (team->apart || usable(team))
        return;
    for (int rank = 0; rank < team->size; rank++) {
        (void)trib_comm_destroy(team->comms[rank]);
        team->comms[rank] = NULL;
    }
    team_open(team, NULL);
}

void sparse_session_mend(struct sparse_session *session)
{
    mend(&session->team);
    if (session->has_twin)
        mend(&session->twin);
}

/* Where the ranks of a team apart run may be told by the process; its twin is on one host. */
static bool has_shape(const struct sparse_session *session, const struct sparse_plan *plan)
{
    return !session->team.apart || plan->hosts != NULL || strcmp(plan->algorithm, "hier") != 0;
}

void sparse_case(struct sparse_session *session, const struct sparse_plan *plan, int steps)
{
    char text[256];
    struct sparse_seen trace[SPARSE_STEPS], twin[SPARSE_STEPS];
    struct sparse_plan seeded = *plan;
    seeded.seed = session->seed++;
    if (!has_shape(session, plan) || (session->team.apart && !usable(&session->team)))
        return;
    check_begin("%s: %s", session->team.backend,
                sparse_describe(plan, session->team.size, text, sizeof text));
    if (sparse_trial(&session->team, &seeded, steps, trace) && session->has_twin &&
        sparse_trial(&session->twin, &seeded, steps, twin)) {
        sparse_same_bytes(&session->team, trace, twin, steps, session->twin.backend);
        sparse_same_words(&session->team, trace, twin, steps);
    }
    check_end();
    sparse_session_mend(session);
}

/* NCCL rounds a sum in its own order: with more than two ranks not that of the ranks. */
static bool in_rank_order(const struct sparse_session *session, const struct sparse_plan *plan)
{
    const bool allreduced =
        strcmp(plan->algorithm, "dense") == 0 || strcmp(plan->algorithm, "shared") == 0;
    return !allreduced || (plan->input != SPARSE_FLOATS && plan->clip == 0 && plan->wire == 0) ||
           session->team.size <= 2 || strcmp(session->team.backend, "host") == 0;
}

/* Quick runs take every sixth case, other ones for other numbers of ranks. */
static bool taken(const struct sparse_session *session, size_t n)
{
    return session->depth == SPARSE_WHOLE || (n + (size_t)session->team.size) % 6 == 0;
}

/* ---------------------------------------------------------------------------------- long runs */

/* The algorithms, and their options: k = 60 makes whole numbers of all their fractions. */
static const struct sparse_plan variants[] = {
    {.algorithm = "dense"},
    {.algorithm = "topka"},
    {.algorithm = "topka2"},
    {.algorithm = "topkaopt"},
    {.algorithm = "topksa"},
    {.algorithm = "gtopk"},
    {.algorithm = "oktopk"},
    {.algorithm = "oktopk", .constants = "vgg"},
    {.algorithm = "oktopk", .constants = "lstm"},
    {.algorithm = "oktopk", .constants = "bert"},
    {.algorithm = "gaussiank"},
    {.algorithm = "gaussiank", .constants = "lstm"},
    {.algorithm = "gaussiank", .constants = "bert"},
    {.algorithm = "gaussiankconcat"},
    {.algorithm = "gaussianksa"},
    {.algorithm = "srs"},
    {.algorithm = "shared"},
    {.algorithm = "chunked", .chunk = 128},
    {.algorithm = "hier"},
    {.algorithm = "hier", .hosts = sparse_hosts_each},
    {.algorithm = "hier", .hosts = sparse_hosts_turns},
    {.algorithm = "hier", .hosts = sparse_hosts_uneven},
};

enum { VARIANTS = sizeof variants / sizeof *variants };

void sparse_long_runs(struct sparse_session *session)
{
    const int size = session->team.size;
    const bool quick = session->depth != SPARSE_WHOLE;
    for (int i = 0; i < VARIANTS; i++) {
        struct sparse_plan plan = variants[i];
        plan.count = size <= 8 ? 1009 : size <= 16 ? 509 : 301;
        plan.k = 60;
        sparse_case(session, &plan,
                    quick        ? 34
                    : size <= 4  ? 300
                    : size <= 8  ? 140
                    : size <= 16 ? 70
                                 : 36);
    }
}

/* The same inputs once more give the same bytes; other ranks with the same inputs, other
 * residuals. */
static void again(struct sparse_session *session)
{
    enum { STEPS = 12 };
    for (int i = 0; i < VARIANTS; i++) {
        if (!taken(session, (size_t)i))
            continue;
        struct sparse_seen trace[STEPS], other[STEPS];
        struct sparse_plan plan = variants[i];
        plan.count = 513;
        plan.k = 36;
        plan.input = SPARSE_FLOATS;
        if (!in_rank_order(session, &plan) || !has_shape(session, &plan))
            continue;
        check_begin("%s: %s twice, rounded sums", session->team.backend, plan.algorithm);
        if (sparse_trial(&session->team, &plan, STEPS, trace) &&
            sparse_trial(&session->team, &plan, STEPS, other))
            sparse_same_bytes(&session->team, trace, other, STEPS, "the second time");
        check_end();
        sparse_session_mend(session);
        plan.input = SPARSE_SPREAD;
        plan.turn = 1;
        sparse_case(session, &plan, 3);
    }
}

/* -------------------------------------------------------------------------------------- sizes */

void sparse_inputs(struct sparse_session *session)
{
    for (int i = 0; i < VARIANTS; i++)
        for (int input = 1; input < SPARSE_FLOATS; input++) {
            struct sparse_plan plan = variants[i];
            plan.count = 251;
            plan.k = 12;
            plan.input = (enum sparse_input)input;
            plan.chunk = plan.chunk == 0 ? 0 : 32;
            if (taken(session, (size_t)(i + input)))
                sparse_case(session, &plan, input == SPARSE_SHRINKING ? 20 : 4);
        }
}

void sparse_sizes(struct sparse_session *session)
{
    const size_t size = (size_t)session->team.size;
    const struct {
        size_t count, k;
    } sizes[] = {{0, 0},       {0, 3},     {1, 1},        {size - 1, 1},
                 {size, size}, {size, 1},  {size + 1, 2}, {2 * size + 1, size},
                 {97, 0},      {97, 1},    {97, 96},      {97, 97},
                 {97, 1000},   {4099, 40}, {8193, 36},    {100, 30}};
    for (int i = 0; i < VARIANTS; i++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            struct sparse_plan plan = variants[i];
            plan.count = sizes[s].count;
            plan.k = sizes[s].k;
            plan.chunk = plan.chunk == 0 ? 0 : 64;
            plan.input = s % 2 ? SPARSE_TIES : SPARSE_SPREAD;
            if (taken(session, (size_t)i + s))
                sparse_case(session, &plan, 3);
        }
}

/* What is changed about every variant. */
static const struct sparse_plan changes[] = {
    {.flags = TRIB_SPARSE_IN_PLACE},
    {.flags = TRIB_SPARSE_IN_PLACE, .decay = 0.5},
    {.flags = TRIB_SPARSE_IN_PLACE | TRIB_SPARSE_ENTRIES, .shift = 1},
    {.flags = TRIB_SPARSE_IN_PLACE, .dtype = TRIB_F64},
    {.flags = TRIB_SPARSE_IN_PLACE, .input = SPARSE_BAD},
    {.flags = TRIB_SPARSE_ENTRIES, .input = SPARSE_BAD},
    {.flags = TRIB_SPARSE_ENTRIES | TRIB_SPARSE_AVERAGE, .dtype = TRIB_F64},
    {.flags = TRIB_SPARSE_AVERAGE, .shift = 3},
    {.flags = TRIB_SPARSE_AVERAGE, .dtype = TRIB_F16},
    {.flags = TRIB_SPARSE_AVERAGE | TRIB_SPARSE_ENTRIES, .dtype = TRIB_BF16, .shift = 1},
    {.input = SPARSE_BAD},
    {.input = SPARSE_BAD, .dtype = TRIB_F16},
    {.decay = 0.5},
    {.decay = 0.9, .input = SPARSE_FLOATS},
    {.decay = 0.9, .input = SPARSE_FLOATS, .flags = TRIB_SPARSE_IN_PLACE},
    {.dtype = TRIB_F64},
    {.dtype = TRIB_F16, .shift = 1},
    {.dtype = TRIB_BF16, .shift = 5},
    {.dtype = TRIB_BF16, .flags = TRIB_SPARSE_AVERAGE},
    {.dtype = TRIB_BF16, .input = SPARSE_SHIFTED}, /* residuals that bf16 could not hold */
    {.input = SPARSE_ZERO, .flags = TRIB_SPARSE_IN_PLACE},
    {.wire = TRIB_BF16},
    {.wire = TRIB_BF16, .input = SPARSE_FINE},
    {.wire = TRIB_BF16, .input = SPARSE_FINE, .flags = TRIB_SPARSE_IN_PLACE},
    {.wire = TRIB_BF16, .input = SPARSE_FINE, .flags = TRIB_SPARSE_ENTRIES, .dtype = TRIB_F16},
    {.wire = TRIB_BF16, .input = SPARSE_TINY},
    {.wire = TRIB_BF16, .flags = TRIB_SPARSE_ENTRIES, .dtype = TRIB_F16},
    {.wire = TRIB_BF16, .input = SPARSE_BAD, .dtype = TRIB_BF16},
    {.input = SPARSE_OVERFLOW, .dtype = TRIB_F16},
    {.input = SPARSE_OVERFLOW, .dtype = TRIB_F16, .flags = TRIB_SPARSE_ENTRIES},
    {.input = SPARSE_OVERFLOW, .dtype = TRIB_F16, .flags = TRIB_SPARSE_AVERAGE},
    {.input = SPARSE_OVERFLOW, .dtype = TRIB_F16, .flags = TRIB_SPARSE_F32_RESULT, .shift = 1},
    {.input = SPARSE_SHIFTED,
     .dtype = TRIB_BF16,
     .flags = TRIB_SPARSE_F32_RESULT | TRIB_SPARSE_ENTRIES},
    {.momentum = 0.5},
    {.momentum = 0.5, .flags = TRIB_SPARSE_NO_MASKING},
    {.momentum = 0.5, .flags = TRIB_SPARSE_IN_PLACE},
    {.momentum = 0.5, .flags = TRIB_SPARSE_IN_PLACE, .input = SPARSE_BAD, .shift = 1},
    {.momentum = 0.5,
     .flags = TRIB_SPARSE_IN_PLACE | TRIB_SPARSE_NO_MASKING | TRIB_SPARSE_ENTRIES,
     .dtype = TRIB_F64,
     .decay = 0.5},
    {.momentum = 0.5, .dtype = TRIB_F64, .flags = TRIB_SPARSE_ENTRIES, .shift = 3},
    {.momentum = 0.5, .dtype = TRIB_F16, .flags = TRIB_SPARSE_AVERAGE},
    {.momentum = 0.5, .dtype = TRIB_BF16, .wire = TRIB_BF16, .flags = TRIB_SPARSE_ENTRIES},
    {.momentum = 0.5, .input = SPARSE_BAD, .wire = TRIB_BF16},
    {.momentum = 0.5, .input = SPARSE_OVERFLOW, .dtype = TRIB_F16},
    {.momentum = 0.9, .input = SPARSE_FLOATS, .decay = 0.9},
    {.momentum = 0.5, .clip = 1},
    {.momentum = 0.5, .clip = 0.5, .dtype = TRIB_F64, .input = SPARSE_EMPTY},
    {.momentum = 0.5, .clip = 2, .dtype = TRIB_F16, .input = SPARSE_BAD},
    {.momentum = 0.5, .clip = 1, .dtype = TRIB_BF16, .flags = TRIB_SPARSE_NO_MASKING}};

void sparse_variants(struct sparse_session *session)
{
    for (int i = 0; i < VARIANTS; i++)
        for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
            struct sparse_plan plan = changes[c];
            plan.algorithm = variants[i].algorithm;
            plan.constants = variants[i].constants;
            plan.hosts = variants[i].hosts;
            plan.chunk = variants[i].chunk == 0 ? 0 : 64;
            plan.count = 509;
            plan.k = 36;
            if (taken(session, (size_t)i + c) && in_rank_order(session, &plan))
                sparse_case(session, &plan, plan.decay != 0 || plan.momentum != 0 ? 6 : 9);
        }
}

/* Packets so large that GPUs read them where they were made. */
static void near(struct sparse_session *session)
{
    static const struct sparse_plan plans[] = {
        {.algorithm = "topka"},
        {.algorithm = "topka", .flags = TRIB_SPARSE_IN_PLACE, .input = SPARSE_BAD},
        {.algorithm = "topka", .wire = TRIB_BF16, .input = SPARSE_FINE},
        {.algorithm = "topka", .dtype = TRIB_F64, .momentum = 0.5},
        {.algorithm = "topka", .dtype = TRIB_F16, .input = SPARSE_OVERFLOW},
        {.algorithm = "topka", .flags = TRIB_SPARSE_ENTRIES},
        {.algorithm = "chunked", .chunk = 4096},
        {.algorithm = "chunked", .chunk = 16384, .flags = TRIB_SPARSE_IN_PLACE},
        {.algorithm = "chunked", .chunk = 64, .wire = TRIB_BF16, .input = SPARSE_BAD}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct sparse_plan plan = plans[i];
        plan.count = 200003;
        plan.k = 140000;
        sparse_case(session, &plan, 4);
    }
}

/* -------------------------------------------------------------------------------------- suite */

/* The parts of the suite, and with which numbers of ranks and how deep they are made. */
static const struct part {
    const char *name;
    void (*run)(struct sparse_session *session);
    enum sparse_depth depth; /* the least deep suite that has it */
    int least, most;         /* ranks */
    bool apart;              /* its ranks share nothing in memory: each may have a process */
} parts[] = {{"long", sparse_long_runs, SPARSE_LIGHT, 1, TEAM_MAX, true},
             {"inputs", sparse_inputs, SPARSE_QUICK, 1, TEAM_MAX, true},
             {"sizes", sparse_sizes, SPARSE_QUICK, 1, TEAM_MAX, true},
             {"variants", sparse_variants, SPARSE_QUICK, 1, TEAM_MAX, true},
             {"near", near, SPARSE_QUICK, 2, 4, true},
             {"again", again, SPARSE_QUICK, 1, TEAM_MAX, true},
             {"changes", sparse_changes, SPARSE_QUICK, 1, TEAM_MAX, false},
             {"sharing", sparse_sharing, SPARSE_QUICK, 1, TEAM_MAX, false},
             {"mistakes", sparse_mistakes, SPARSE_QUICK, 1, TEAM_MAX, false},
             {"large", sparse_large, SPARSE_WHOLE, 2, 2, false},
             {"aborts", sparse_aborts, SPARSE_LIGHT, 1, 4, false}};

/* A part that is named is made however deep the suite is, and on any number of ranks. */
static bool wanted(const struct sparse_session *session, const struct part *part)
{
    const enum check_part asked = check_part(part->name);
    const int size = session->team.size;
    if (session->team.apart && !part->apart)
        return false;
    if (asked != CHECK_PART_USUAL)
        return asked == CHECK_PART_NAMED;
    return session->depth <= part->depth && size >= part->least && size <= part->most;
}

static bool prepare(struct team *team, const char *backend, int size)
{
    return team_prepare(team, backend, size) && team_open(team, NULL);
}

/* A session whose team is there, if `ready`. */
static void run_session(struct sparse_session *session, bool ready)
{
    const uint64_t before = sparse_judged();
    const double start = check_now_ms();
    int made = 0;
    for (size_t i = 0; ready && i < sizeof parts / sizeof *parts; i++) {
        if (!wanted(session, &parts[i]))
            continue;
        parts[i].run(session);
        made++;
    }
    if (ready && session->team.apart) { /* cases are left out once it has ended */
        check_begin("%s, rank %d of %d: the end", session->team.backend, session->team.own,
                    session->team.size);
        CHECK_MSG(made > 0 && usable(&session->team), "%d parts were made", made);
        check_end();
    }
    if (ready) {
        team_destroy(&session->team);
        if (session->has_twin)
            team_destroy(&session->twin);
    }
    printf("  %s, %d ranks: %llu steps judged, %.1f s\n", session->team.backend, session->team.size,
           (unsigned long long)(sparse_judged() - before), (check_now_ms() - start) / 1000);
    (void)fflush(stdout); /* a child ends without */
}

static struct sparse_session *new_session(int size, bool has_twin, enum sparse_depth depth)
{
    struct sparse_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        abort();
    session->depth = depth;
    session->seed = (uint64_t)size << 32;
    session->has_twin = has_twin;
    return session;
}

void sparse_suite(const char *backend, const char *twin, int size, enum sparse_depth depth)
{
    struct sparse_session *session = new_session(size, twin != NULL, depth);
    check_begin("%s, %d ranks: creation", backend, size);
    const bool ready = prepare(&session->team, backend, size) &&
                       (twin == NULL || prepare(&session->twin, twin, size));
    check_end();
    run_session(session, ready);
    free(session);
}

void sparse_suite_apart(const char *backend, const char *twin, const trib_id *id, int own, int size,
                        int32_t ordinal, enum sparse_depth depth)
{
    struct sparse_session *session = new_session(size, true, depth);
    check_begin("%s, rank %d of %d: creation", backend, own, size);
    const bool ready = team_create_apart(&session->team, backend, id, own, size, ordinal) &&
                       prepare(&session->twin, twin, size);
    check_end();
    run_session(session, ready);
    free(session);
}
