/* Faults by counting: every call to the backend, every allocation and every thread start of small
 * programs over all of the library fails once, and calls to the backend are also late or overtaken
 * by an abort. See injection.h, trial.c.
 *
 *   injection_test [PROGRAM [SEED]]    those whose names begin so; all
 *
 * With TRIB_TEST_QUICK=N a sample, N times as thin as with 1, which SEED turns: walk.h. At the end it
 * says how many faults there were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/injection/first.h"
#include "tests/injection/programs.h"
#include "tests/injection/walk.h"

static const char *chosen = "";
static long total[INJECT_MODES];

static void report(const char *name, const char *kind, const long *injected, double ms)
{
    printf("  %-28s %-16s %5ld failures, %5ld delays, %5ld aborts, %4ld allocations, %3ld thread "
           "starts; %.1f s\n",
           name, kind, injected[INJECT_FAILURE], injected[INJECT_DELAY], injected[INJECT_ABORT],
           injected[INJECT_NO_MEMORY], injected[INJECT_NO_THREAD], ms / 1e3);
    fflush(stdout);
}

/* Every mode, for this number of ranks and this kind of backend. */
static void walk_all(const struct program *program, int size, bool queued)
{
    long injected[INJECT_MODES] = {0};
    char kind[32];
    const double begin = check_now_ms();
    walk_begin(program, size, queued);
    for (int mode = INJECT_FAILURE; mode < INJECT_MODES; mode++) {
        injected[mode] = walk(program, size, queued, (enum injection_mode)mode);
        total[mode] += injected[mode];
    }
    (void)snprintf(kind, sizeof kind, "%d ranks%s", size, queued ? ", queued" : "");
    report(program->name, kind, injected, check_now_ms() - begin);
}

/* `turn`: in the sample, every other one is of a backend that queues. */
static void walk_sizes(const struct program *program, size_t turn, bool alternates)
{
    /* One thread cannot make the calls of several ranks one after the other, where none is
     * submitted. */
    const bool drives = (program->flags & PROGRAM_DRIVES) != 0;
    const bool sampled = walk_is_quick() && alternates;
    if (strncmp(program->name, chosen, strlen(chosen)) != 0)
        return;
    for (int size = walk_is_quick() ? RANKS_MAX : 1; size <= RANKS_MAX; size++) {
        if (!sampled || turn % 2 == 0)
            walk_all(program, size, false);
        if (!drives && (!sampled || turn % 2 == 1))
            walk_all(program, size, true);
    }
}

static void walk_first(const char *program)
{
    long injected[INJECT_MODES] = {0};
    const double begin = check_now_ms();
    if (chosen[0] != '\0')
        return;
    for (int mode = INJECT_NO_MEMORY; mode <= INJECT_NO_THREAD; mode++) {
        injected[mode] = first_walk(program, (enum injection_mode)mode);
        total[mode] += injected[mode];
    }
    report("the first use in a process", "1 rank", injected, check_now_ms() - begin);
}

int main(int argc, char **argv)
{
    static const struct program *const areas[] = {programs_life, programs_dense, programs_lists,
                                                  programs_reducer};
    const struct program *sparse = NULL;
    const double begin = check_now_ms();
    if (argc == 4 && strcmp(argv[1], "--first") == 0)
        return first_use((enum injection_mode)atoi(argv[2]), atol(argv[3]));
    if (argc > 1)
        chosen = argv[1];
    const long seed = argc > 2 ? atol(argv[2]) : 0;
    walk_seed(seed);
    trial_watched();
    walk_first(argv[0]);
    for (size_t area = 0; area < sizeof areas / sizeof *areas; area++)
        for (const struct program *program = areas[area]; program->name != NULL; program++)
            walk_sizes(program, 0, false);
    const size_t n = programs_sparse(&sparse);
    for (size_t i = 0; i < n; i++)
        walk_sizes(&sparse[i], i + (size_t)seed, true);
    report("all", "", total, check_now_ms() - begin);
    return check_finish("injection_test");
}
