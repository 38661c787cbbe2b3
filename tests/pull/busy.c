#include "tests/pull/busy.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/pull/fill.h"
#include "tests/pull/numbers.h"

enum {
    RANKS_MAX = 4,
    FEW = 1000, /* elements, which push takes */
    MANY = NUMBERS_PULLED,
    CALLS = 3,
    BUSY_MS = 150,
    TRIES = 3, /* of a case: on a busy host the kernel that fills may end before all is queued */
    PLENTY_MS = 20000
};

/* When the devices are filled: before any rank makes its calls, or while all but the last wait for it. */
enum when { BEFORE, AMID, WHENS };

struct busy {
    const struct team *team;
    cudaStream_t streams[RANKS_MAX]; /* beside those of the team */
    float *data[RANKS_MAX], *image;
};

/* One case. */
struct crowd {
    size_t count;
    enum when when;
    int waves;
    int first; /* device that is filled, and all behind it */
};

/* And the kernel that fills is loaded here, where nothing waits. */
static void open_busy(struct busy *b)
{
    for (int r = 0; r < b->team->size; r++) {
        MUST(cudaSetDevice(r));
        MUST(cudaStreamCreateWithFlags(&b->streams[r], cudaStreamNonBlocking));
        MUST(cudaMalloc((void **)&b->data[r], MANY * sizeof(float)));
        MUST(fill_device(b->streams[r], 1, 1));
        MUST(cudaDeviceSynchronize());
    }
    b->image = malloc(MANY * sizeof(float));
}

static void close_busy(struct busy *b)
{
    for (int r = 0; r < b->team->size; r++) {
        MUST(cudaSetDevice(r));
        MUST(cudaDeviceSynchronize());
        MUST(cudaFree(b->data[r]));
        MUST(cudaStreamDestroy(b->streams[r]));
    }
    free(b->image);
}

static void set_input(const struct busy *b, int rank, size_t count)
{
    for (size_t e = 0; e < count; e++)
        b->image[e] = numbers_of(rank, e);
    MUST(cudaSetDevice(rank));
    MUST(cudaMemcpy(b->data[rank], b->image, count * sizeof(float), cudaMemcpyDefault));
    MUST(cudaDeviceSynchronize());
}

/* The sum; what follows finds the same on all ranks. */
static void queue(const struct busy *b, int rank, size_t count)
{
    float *const data = b->data[rank];
    bool good = true;
    for (int i = 0; i < CALLS && good; i++)
        good = CHECK_OK(trib_allreduce(b->team->comms[rank], data, data, count, TRIB_F32,
                                       i == 0 ? TRIB_SUM : TRIB_MAX, b->team->streams[rank]));
    team_go_on(b->team, rank, good);
}

static void fill_all(const struct busy *b, const struct crowd *crowd)
{
    for (int r = crowd->first; r < b->team->size; r++) {
        MUST(cudaSetDevice(r));
        MUST(fill_device(b->streams[r], BUSY_MS, crowd->waves));
    }
}

/* Is the kernel that fills still there, when the calls have been queued? */
static bool are_filled(const struct busy *b, const struct crowd *crowd)
{
    bool filled = true;
    for (int r = crowd->first; r < b->team->size; r++) {
        const cudaError_t found = cudaStreamQuery(b->streams[r]);
        if (found != cudaErrorNotReady)
            MUST(found);
        filled = filled && found == cudaErrorNotReady;
    }
    return filled;
}

static void check_sums(const struct busy *b, int rank, size_t count)
{
    size_t wrong = 0;
    MUST(cudaSetDevice(rank));
    MUST(cudaMemcpy(b->image, b->data[rank], count * sizeof(float), cudaMemcpyDefault));
    for (size_t e = 0; e < count; e++)
        wrong += b->image[e] != numbers_sum(b->team->size, e);
    CHECK_MSG(wrong == 0, "rank %d: %zu of %zu elements are wrong", rank, wrong, count);
}

/* All ranks' calls; false if the devices were not filled for long enough. */
static bool queue_all(const struct busy *b, const struct crowd *crowd)
{
    const int size = b->team->size;
    for (int r = 0; r < size; r++)
        set_input(b, r, crowd->count);
    if (crowd->when == BEFORE)
        fill_all(b, crowd);
    for (int r = 0; r < size; r++) {
        if (crowd->when == AMID && r == size - 1) {
            check_sleep_ms(2); /* those of the others run */
            fill_all(b, crowd);
        }
        queue(b, r, crowd->count);
    }
    return are_filled(b, crowd);
}

/* As queue_all. */
static bool try_crowd(const struct busy *b, const struct crowd *crowd)
{
    const bool filled = queue_all(b, crowd);
    bool good = true;
    for (int r = 0; r < b->team->size; r++)
        good = team_finish(b->team, r, PLENTY_MS) && good;
    for (int r = 0; r < b->team->size && good; r++)
        check_sums(b, r, crowd->count);
    return filled;
}

static void run_crowd(const struct busy *b, const struct crowd *crowd)
{
    bool filled = false;
    check_begin("%d ranks: %d calls of %zu, %d devices are filled %s, in %d waves", b->team->size,
                (int)CALLS, crowd->count, b->team->size - crowd->first,
                crowd->when == BEFORE ? "before" : "while ranks wait", crowd->waves);
    for (int i = 0; i < TRIES && !filled && !check_failed(); i++)
        filled = try_crowd(b, crowd);
    CHECK_MSG(filled || check_failed(), "%d times a device was free before all calls were queued",
              (int)TRIES);
    check_end();
}

void busy(const struct team *team)
{
    struct busy b = {.team = team};
    open_busy(&b);
    for (int i = 0; i < 2 * 2 * 2 * WHENS && team_usable(team); i++)
        run_crowd(&b, &(struct crowd){.count = i % 2 != 0 ? MANY : FEW,
                                      .waves = i / 2 % 2 != 0 ? 10 : 1,
                                      .first = i / 4 % 2 != 0 ? team->size - 1 : 0,
                                      .when = (enum when)(i / 8)});
    close_busy(&b);
}
