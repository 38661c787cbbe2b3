/* The gradients of ResNet-50 (He et al. 2015, table 1). */
#include "benches/resnet50.h"

static void add(size_t *counts, size_t *n, size_t weights, size_t channels)
{
    counts[(*n)++] = weights;
    counts[(*n)++] = channels; /* batch norm: scale, shift */
    counts[(*n)++] = channels;
}

void resnet50(size_t counts[RESNET50_TENSORS])
{
    static const size_t stages[4][3] = {
        {3, 64, 256}, {4, 128, 512}, {6, 256, 1024}, {3, 512, 2048}};
    size_t n = 0, in = 64;
    add(counts, &n, 7 * 7 * 3 * 64, 64);
    for (int stage = 0; stage < 4; stage++) {
        const size_t mid = stages[stage][1], out = stages[stage][2];
        for (size_t block = 0; block < stages[stage][0]; block++) {
            add(counts, &n, in * mid, mid);
            add(counts, &n, mid * mid * 9, mid);
            add(counts, &n, mid * out, out);
            if (block == 0)
                add(counts, &n, in * out, out);
            in = out;
        }
    }
    counts[n++] = 2048 * 1000;
    counts[n++] = 1000;
}
