/* The variants of communicators and calls that the sweep compares: a row here is all that a new one takes. */
#include "benches/sweep.h"

static void unchecked(trib_options *options)
{
    options->flags |= TRIB_UNCHECKED;
}

static void unrecorded(trib_options *options)
{
    options->flags |= TRIB_UNRECORDED;
}

static void no_peers(trib_options *options)
{
    options->peer_bytes = TRIB_NO_PEERS;
}

/* Where nobody aborts, any NCCL that has windows will do. */
static void windows(trib_options *options)
{
    options->flags |= TRIB_WINDOWS | TRIB_WINDOWS_UNABORTABLE;
}

const struct sweep_variant sweep_variants[] = {
    {.name = "default"},
    {.name = "unchecked", .choose = unchecked},
    {.name = "unrecorded", .choose = unrecorded},
    {.name = "no_peers", .choose = no_peers},
    {.name = "nccl", .variant = TRIB_VARIANT_NCCL},
    {.name = "push", .variant = TRIB_VARIANT_PUSH},
    {.name = "one_shot", .variant = TRIB_VARIANT_ONE_SHOT},
    {.name = "two_shot", .variant = TRIB_VARIANT_TWO_SHOT},
    {.name = "symmetric", .symmetric = true, .variant = TRIB_VARIANT_SYMMETRIC},
    {.name = "windows", .choose = windows, .symmetric = true, .variant = TRIB_VARIANT_WINDOW},
    {.name = NULL},
};
