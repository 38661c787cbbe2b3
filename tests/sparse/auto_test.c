/* auto: what it chooses by given figures of a link, what figures come of given times, and that all
 * ranks of a communicator measure once, and then choose the same. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "csrc/core/communicator.h"
#include "csrc/sparse/algorithm.h"
#include "csrc/sparse/measure.h"
#include "csrc/sparse/state.h"
#include "tests/team.h"

/* ------------------------------------------------------------------------------------ the model */

struct link {
    const char *name;
    double bandwidth, latency;
};
static const struct link sockets = {"sockets", 1.2e9, 60e-6}, pcie = {"PCIe", 20e9, 15e-6},
                         nvlink = {"NVLink", 350e9, 8e-6},
                         shorter = {"NVLink by sums of 16 MiB", 283e9, 11e-6};

enum { RESNET = 25557032 };

struct question {
    struct link link;
    size_t count;
    double density;
    int size, hosts;
    bool bf16, in_place;
};

/* Of an H200. */
static struct tri_choice answer(const struct question *question)
{
    const struct tri_sparse_params params = {
        .size = question->size,
        .count = question->count,
        .k = (uint32_t)((double)question->count * question->density),
        .dtype = TRIB_F32,
        .acc = TRIB_F32,
        .result = TRIB_F32,
        .wire = question->bf16 ? TRIB_BF16 : TRIB_F32,
        .in_place = question->in_place,
        .decay = 1};
    const struct tri_machine_speed speed = {
        .device = {.copy = 3.7e12, .select = 3.2e12, .bandwidth = 356e9, .latency = 12e-6},
        .latency = question->link.latency,
        .bandwidth = question->link.bandwidth,
        .measured = true,
        .hosts = question->hosts};
    return tri_sparse_auto(&params, &speed);
}

static void expect(const struct question *question, const char *name)
{
    const struct tri_choice choice = answer(question);
    char figures[64];
    check_begin("%s, %zu elements, density %g, %d ranks%s%s: %s", question->link.name,
                question->count, question->density, question->size, question->bf16 ? ", bf16" : "",
                question->in_place ? ", in place" : "", name);
    CHECK_MSG(strcmp(choice.algorithm->name, name) == 0, "%s", choice.reason);
    CHECK_MSG(strncmp(choice.reason, name, strlen(name)) == 0, "%s", choice.reason);
    (void)snprintf(figures, sizeof figures, "measured %.3g GB/s and %.3g us;",
                   1e-9 * question->link.bandwidth, 1e6 * question->link.latency);
    CHECK_MSG(strstr(choice.reason, figures) != NULL, "%s", choice.reason);
    CHECK_MSG((strstr(choice.reason, "plain bf16") != NULL) == question->bf16, "%s", choice.reason);
    CHECK(strlen(choice.reason) < sizeof choice.reason - 1);
    check_end();
}

static void choices(void)
{
    static const struct {
        struct question question;
        const char *name;
    } cases[] = {
        {{{0}, RESNET, 0.01, 2, 1, false, false}, "topka"},
        {{{0}, RESNET, 0.01, 2, 1, true, false}, "topka"},
    };
    const struct link slow[] = {sockets, pcie};
    for (size_t i = 0; i < 2; i++)
        for (size_t at = 0; at < 2; at++) {
            struct question question = cases[at].question;
            question.link = slow[i];
            expect(&question, cases[at].name);
        }
    /* The lists of many ranks together are more than dense sends. */
    expect(&(struct question){sockets, RESNET, 0.1, 16, 1, false, false}, "srs");
    /* A sum of a few kilobytes is one message, whatever the link. */
    expect(&(struct question){sockets, 1000, 0.01, 2, 1, false, false}, "dense");
    expect(&(struct question){nvlink, 1000000, 0.01, 2, 1, false, false}, "dense");
    /* The links differ in what is worth a selection. */
    expect(&(struct question){sockets, 1000000, 0.01, 2, 1, false, false}, "topka");
    expect(&(struct question){pcie, 1000000, 0.01, 2, 1, false, false}, "topka");
    /* Measured on 2 H200 (docs/algorithms.md), in us: of 25.6M a plain allreduce in bf16 198, topka
     * 200 and in place 147; of 268M 1687, 1351 and 828. */
    for (size_t i = 0; i < 2; i++) {
        const struct link link = i == 0 ? nvlink : shorter;
        expect(&(struct question){link, RESNET, 0.01, 2, 1, false, false}, "topka");
        expect(&(struct question){link, RESNET, 0.01, 2, 1, true, false}, "dense");
        expect(&(struct question){link, RESNET, 0.01, 2, 1, true, true}, "topka");
        expect(&(struct question){link, 268435456, 0.01, 2, 1, true, true}, "topka");
        expect(&(struct question){link, 268435456, 0.01, 2, 1, true, false}, "topka");
    }
    /* Over a network each host receives the lists of all ranks elsewhere. */
    expect(&(struct question){{"100 Gb/s", 12.5e9, 30e-6}, RESNET, 0.001, 16, 2, true, false},
           "topka");
    expect(&(struct question){{"100 Gb/s", 12.5e9, 30e-6}, RESNET, 0.01, 64, 8, false, false},
           "srs");
}

/* The guesses that the reason names, in ms. */
static bool guesses(const struct tri_choice *choice, double guess[4])
{
    const char *from = strstr(choice->reason, "guessed at");
    return from != NULL && sscanf(from,
                                  "guessed at dense %lf ms, topka %lf, srs %lf, a plain bf16 "
                                  "allreduce %lf",
                                  &guess[0], &guess[1], &guess[2], &guess[3]) == 4;
}

/* For any link: what is chosen is the fastest, or dense where no sparse one beats bf16. */
static void never_slower_than_bf16(void)
{
    static const double densities[] = {0.0001, 0.001, 0.01, 0.1, 0.4};
    int refused = 0;
    check_begin("bf16 is allowed: no sparse algorithm that is slower than that");
    for (double bandwidth = 1e7; bandwidth < 1e12; bandwidth *= 3)
        for (size_t count = 1000; count < 1u << 28; count *= 7)
            for (int i = 0; i < 20; i++) {
                struct question question = {{"a link", bandwidth, i < 10 ? 8e-6 : 60e-6},
                                            count,
                                            densities[i % 5],
                                            i % 3 == 0 ? 8 : 2,
                                            1,
                                            true,
                                            i % 2 == 0};
                const struct tri_choice choice = answer(&question);
                const bool dense = choice.algorithm == &tri_sparse_dense;
                double guess[4];
                if (!CHECK_MSG(guesses(&choice, guess), "%s", choice.reason))
                    continue;
                const double sparse = fmin(guess[1], guess[2]);
                CHECK_MSG(dense || 0.99 * sparse <= guess[3], "%s", choice.reason);
                const double least = fmin(guess[0] / 1.2, guess[3]);
                CHECK_MSG(dense == (least <= sparse) || fabs(least - sparse) < 0.02 * sparse, "%s",
                          choice.reason);
                refused += dense && sparse < 0.9 * guess[0];
            }
    CHECK(refused > 0);
    check_end();
}

/* Where the link is slow dense takes half as long in bf16; in place its sums are f32. */
static void dense_in_bf16(void)
{
    struct question question = {{"1 GB/s", 1e9, 60e-6}, RESNET, 0.01, 2, 1, true, false};
    double apart[4], placed[4];
    check_begin("dense in bf16");
    const struct tri_choice narrow = answer(&question);
    question.in_place = true;
    const struct tri_choice wide = answer(&question);
    if (CHECK(guesses(&narrow, apart)) && CHECK(guesses(&wide, placed)))
        CHECK_MSG(apart[0] > 0.49 * placed[0] && apart[0] < 0.52 * placed[0], "%g ms and %g ms",
                  apart[0], placed[0]);
    check_end();
}

/* ---------------------------------------------------------------------------------- the figures */

static size_t series(uint64_t *ns, const struct link *link, double parts)
{
    size_t n = 0;
    for (; n < TRI_MEASURE_SIZES && (n < 2 || ns[n - 1] <= 1000000); n++)
        ns[n] = (uint64_t)(1e9 * (link->latency + 2 * (double)tri_measure_sizes[n] * (parts - 1) /
                                                      parts / link->bandwidth));
    return n;
}

static bool near(double found, double expected, double part)
{
    return CHECK_MSG(fabs(found - expected) <= part * expected, "%g, expected %g", found, expected);
}

static void figures(void)
{
    const struct link links[] = {sockets, pcie, nvlink, {"a modem", 1e4, 0.1}};
    uint64_t ns[TRI_MEASURE_SIZES];
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        check_begin("figures of %s", links[i].name);
        struct tri_measured found = tri_measure_figures(ns, series(ns, &links[i], 2), 2, 1);
        (void)(near(found.bandwidth, links[i].bandwidth, 0.01) &&
               near(found.latency, links[i].latency, i == 3 ? 1.1 : 0.05));
        found = tri_measure_figures(ns, series(ns, &links[i], 8), 8, 1);
        near(found.bandwidth, links[i].bandwidth, 0.01);
        found = tri_measure_figures(ns, series(ns, &links[i], 2), 16, 2); /* 8 ranks a host */
        near(found.bandwidth, links[i].bandwidth, 0.01);
        check_end();
    }
    check_begin("figures of times that cannot be");
    const uint64_t odd[][TRI_MEASURE_SIZES] = {
        {5000, 90000, 80000, 70000}, {0, 0, 0, 0}, {9000, 9000, 9000, 9000}, {9000, 1, 1, 1}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (size_t n = 2; n <= TRI_MEASURE_SIZES; n++) {
            const struct tri_measured found = tri_measure_figures(odd[i], n, 2, 1);
            CHECK(isfinite(found.bandwidth) && found.bandwidth > 0 && found.latency >= 0);
        }
    /* The difference of noise is no bandwidth: at most twice that of the longest exchange. */
    const uint64_t equal[] = {5000, 90000, 1000000};
    const uint64_t closer[] = {5000, 999999, 1000000};
    near(tri_measure_figures(closer, 3, 2, 1).bandwidth, 2 * 4194304e3, 0.01);
    near(tri_measure_figures(equal, 3, 2, 1).bandwidth, (4194304 - 262144) / 910e-6, 0.01);
    check_end();
}

/* ---------------------------------------------------------------------------------- all together */

struct together {
    struct team team;
    struct tri_measured measured[TEAM_MAX];
    char reasons[TEAM_MAX][256];
};

static struct tri_measured *measured(struct trib_comm *comm)
{
    return &comm->measured;
}

static uint64_t backend_calls(trib_comm *comm)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, comm));
    return counters.backend_calls;
}

static trib_sparse_statistics statistics_of(trib_sparse *state)
{
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    CHECK_OK(trib_sparse_statistics_get(&statistics, state));
    return statistics;
}

/* The part that no k changes. */
static void figures_of(char out[64], trib_sparse *state)
{
    const char *from = strstr(statistics_of(state).reason, "measured");
    (void)snprintf(out, 64, "%.*s", from == NULL ? 0 : (int)strcspn(from, ";"), from);
}

/* Exchanges of a call that chose anew for `state`, which had `before`: one, and two that make memory
 * for packets. */
static uint64_t exchanges_since(const struct tri_symmetric *before, const trib_sparse *state)
{
    return state->near == before ? 1 : 3;
}

static void measures_once(int rank, int size, void *argument)
{
    struct together *together = argument;
    trib_comm *comm = together->team.comms[rank];
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *named = NULL, *state = NULL, *other = NULL;
    char first[64], later[64];
    options.algorithm = "topka";
    if (!CHECK_OK(trib_sparse_create(&named, comm, 10000, TRIB_F32, &options)))
        return;
    options.algorithm = NULL;
    options.density = 1; /* there is no choice */
    CHECK_OK(trib_sparse_create(&other, comm, 10000, TRIB_F32, &options));
    CHECK_MSG(measured(comm)->bandwidth == 0, "measured for nobody");
    CHECK(statistics_of(named).reason[0] == '\0');
    options.density = 0;
    if (!CHECK_OK(trib_sparse_create(&state, comm, 10000, TRIB_F32, &options)))
        return;
    together->measured[rank] = *measured(comm);
    (void)snprintf(together->reasons[rank], sizeof together->reasons[rank], "%s",
                   statistics_of(state).reason);
    CHECK_MSG((measured(comm)->bandwidth > 0) == (size > 1), "%g", measured(comm)->bandwidth);
    figures_of(first, state);
    CHECK_MSG(size == 1 ? strncmp(first, "measured:", 9) == 0 : strstr(first, "GB/s and") != NULL,
              "%s", first);
    const uint64_t before = backend_calls(comm);
    const struct tri_symmetric *const had[] = {state->near, other->near};
    CHECK_OK(trib_sparse_set_k(state, 17));
    CHECK_OK(trib_sparse_set_density(other, 0.1));
    const uint64_t sets = backend_calls(comm) - before;
    CHECK_MSG(sets == exchanges_since(had[0], state) + exchanges_since(had[1], other),
              "%llu exchanges", (unsigned long long)sets);
    figures_of(later, state);
    CHECK_MSG(strcmp(first, later) == 0, "%s; then %s", first, later);
    figures_of(later, other);
    CHECK_MSG(strcmp(first, later) == 0, "%s; then %s", first, later);
    CHECK_OK(trib_sparse_destroy(state));
    CHECK_OK(trib_sparse_destroy(other));
    CHECK_OK(trib_sparse_destroy(named));
}

/* A child has a link of its own; and another k may be the first that lets auto choose. */
static void measures_child(int rank, int size, void *argument)
{
    struct together *together = argument;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *state = NULL;
    trib_comm *child = NULL;
    options.density = 1;
    if (!CHECK_OK(trib_comm_split(&child, together->team.comms[rank], 0, rank)))
        return;
    if (CHECK_OK(trib_sparse_create(&state, child, 5000, TRIB_F32, &options))) {
        CHECK(measured(child)->bandwidth == 0);
        CHECK_OK(trib_sparse_set_k(state, 50));
        CHECK((measured(child)->bandwidth > 0) == (size > 1));
        CHECK_OK(trib_sparse_destroy(state));
    }
    CHECK_OK(trib_comm_destroy(child));
}

static void ranks_agree(int size)
{
    struct together together = {.team = {.backend = "host"}};
    check_begin("host, %d ranks: measured once, by all", size);
    if (team_create(&together.team, "host", size, NULL)) {
        check_ranks(size, measures_once, &together);
        check_ranks(size, measures_child, &together);
    }
    for (int rank = 1; rank < size; rank++) {
        CHECK(together.measured[rank].latency == together.measured[0].latency &&
              together.measured[rank].bandwidth == together.measured[0].bandwidth);
        CHECK_MSG(strcmp(together.reasons[rank], together.reasons[0]) == 0, "%s; rank %d: %s",
                  together.reasons[0], rank, together.reasons[rank]);
    }
    printf("  %s\n", together.reasons[0]);
    team_destroy(&together.team);
    check_end();
}

int main(void)
{
    choices();
    never_slower_than_bf16();
    dense_in_bf16();
    figures();
    ranks_agree(1);
    ranks_agree(2);
    ranks_agree(5);
    return check_finish("auto_test");
}
