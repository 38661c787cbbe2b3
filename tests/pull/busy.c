#include "tests/pull/busy.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/pull/fill.h"

enum {
    RANKS_MAX = 4,
    FEW = 1000,     /* elements, which push takes */
    MANY = 1000003, /* pull */
    CALLS = 3,
    BUSY_MS = 150,
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

static float input(int rank, size_t e)
{
    return (float)((e * 7 + (size_t)rank * 3) % 11);
}

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
        b->image[e] = input(rank, e);
    MUST(cudaSetDevice(rank));
    MUST(cudaMemcpy(b->data[rank], b->image, count * sizeof(float), cudaMemcpyDefault));
    MUST(cudaDeviceSynchronize());
}

/* The sum; what follows finds the same on all ranks. */
static void queue(const struct busy *b, int rank, size_t count)
{
    for (int i = 0; i < CALLS; i++)
        CHECK_OK(trib_allreduce(b->team->comms[rank], b->data[rank], b->data[rank], count, TRIB_F32,
                                i == 0 ? TRIB_SUM : TRIB_MAX, b->team->streams[rank]));
}

static void fill_all(const struct busy *b, const struct crowd *crowd)
{
    for (int r = crowd->first; r < b->team->size; r++) {
        MUST(cudaSetDevice(r));
        MUST(fill_device(b->streams[r], BUSY_MS, crowd->waves));
    }
}

/* Is the kernel that fills still there, when the calls have been queued? */
static void check_filled(const struct busy *b, const struct crowd *crowd)
{
    for (int r = crowd->first; r < b->team->size; r++)
        CHECK_MSG(cudaStreamQuery(b->streams[r]) == cudaErrorNotReady,
                  "device %d is not filled any more", r);
}

static void check_sums(const struct busy *b, int rank, size_t count)
{
    size_t wrong = 0;
    MUST(cudaSetDevice(rank));
    MUST(cudaMemcpy(b->image, b->data[rank], count * sizeof(float), cudaMemcpyDefault));
    for (size_t e = 0; e < count; e++) {
        float sum = 0;
        for (int r = 0; r < b->team->size; r++)
            sum += input(r, e);
        wrong += b->image[e] != sum;
    }
    CHECK_MSG(wrong == 0, "rank %d: %zu of %zu elements are wrong", rank, wrong, count);
}

static void run_crowd(const struct busy *b, const struct crowd *crowd)
{
    const int size = b->team->size;
    check_begin("%d ranks: %d calls of %zu, %d devices are filled %s, in %d waves", size,
                (int)CALLS, crowd->count, size - crowd->first,
                crowd->when == BEFORE ? "before" : "while ranks wait", crowd->waves);
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
    check_filled(b, crowd);
    for (int r = 0; r < size; r++)
        CHECK(team_wait(b->team, r, PLENTY_MS));
    for (int r = 0; r < size; r++)
        check_sums(b, r, crowd->count);
    check_end();
}

void busy(const struct team *team)
{
    struct busy b = {.team = team};
    open_busy(&b);
    for (int i = 0; i < 2 * 2 * 2 * WHENS; i++)
        run_crowd(&b, &(struct crowd){.count = i % 2 != 0 ? MANY : FEW,
                                      .waves = i / 2 % 2 != 0 ? 10 : 1,
                                      .first = i / 4 % 2 != 0 ? team->size - 1 : 0,
                                      .when = (enum when)(i / 8)});
    close_busy(&b);
}
