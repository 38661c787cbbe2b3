/* Walks: the same program with the fault at one call after the other. */
#include "tests/injection/walk.h"

#include <stdlib.h>

#include "tests/process.h"

enum { JOIN_MS = 1000, FIRST = 100, STRIDE = 7, MOST = 5000 };

/* In a sample of thinness 1, of the first calls. */
static const long strides[INJECT_MODES] = {
    [INJECT_FAILURE] = 1,   [INJECT_DELAY] = 4,     [INJECT_ABORT] = 2,
    [INJECT_NO_MEMORY] = 1, [INJECT_NO_THREAD] = 1,
};

/* Threads that have been joined are listed for a moment. */
static void check_process(long threads, long descriptors)
{
    const double end = check_now_ms() + JOIN_MS;
    while (process_threads() > threads && check_now_ms() < end)
        check_sleep_ms(1);
    CHECK_MSG(process_threads() <= threads, "%ld threads more", process_threads() - threads);
    CHECK_MSG(process_descriptors() == descriptors, "%ld descriptors more",
              process_descriptors() - descriptors);
}

static long seed;

/* How thin the sample is; 0: it is the whole. */
static long thinness(void)
{
    const char *quick = getenv("TRIB_TEST_QUICK");
    return quick == NULL ? 0 : atol(quick);
}

bool walk_is_quick(void)
{
    return thinness() != 0;
}

static long stride_of(enum injection_mode mode)
{
    return strides[mode] * thinness();
}

void walk_seed(long value)
{
    seed = value;
}

/* The call after call `n`, where `turn` ranks have had theirs. */
static long next(long n, long turn, int victims, enum injection_mode mode)
{
    if (!walk_is_quick())
        return n + ((turn + 1) % victims == 0);
    return n + (n < FIRST ? stride_of(mode) : STRIDE * thinness());
}

static struct injection_fault fault_of(enum injection_mode mode, long turn, int victims, long n)
{
    const long rank = walk_is_quick() ? turn + seed : turn;
    return (struct injection_fault){mode, (int)(rank % victims), n};
}

void walk_begin(const struct program *program, int size, bool queued)
{
    const struct injection_fault none = {INJECT_NOTHING, 0, 0};
    injection_backend(queued);
    check_begin("%s, %d ranks%s: no fault", program->name, size, queued ? ", queued" : "");
    (void)trial_run(program, size, queued, &none);
    check_end();
}

long walk(const struct program *program, int size, bool queued, enum injection_mode mode)
{
    const int victims = (program->flags & PROGRAM_DRIVES) != 0 ? 1 : size;
    const char *kind = queued ? ", queued" : "";
    const long threads = process_threads() + 2; /* deadlines, the timer of streams */
    const long descriptors = process_descriptors();
    long n = walk_is_quick() ? 1 + seed % stride_of(mode) : 1, injected = 0;
    int whole = 0; /* runs in a row */
    for (long turn = 0; whole < victims && n < MOST; n = next(n, turn++, victims, mode)) {
        const struct injection_fault fault = fault_of(mode, turn, victims, n);
        check_begin("%s, %d ranks%s: %s at call %ld of rank %d", program->name, size, kind,
                    injection_mode_name(mode), n, fault.rank);
        const bool fired = trial_run(program, size, queued, &fault);
        check_end();
        whole = fired ? 0 : whole + 1;
        injected += fired;
    }
    check_begin("%s, %d ranks%s: %s", program->name, size, kind, injection_mode_name(mode));
    CHECK_MSG(whole == victims, "no run has passed whole");
    check_process(threads, descriptors);
    check_end();
    return injected;
}
