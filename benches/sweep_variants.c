/* The variants of communicators that the sweep compares: a row here is all that a new one takes. */
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

const struct sweep_variant sweep_variants[] = {
    {"default", NULL}, {"unchecked", unchecked}, {"unrecorded", unrecorded}, {"no_peers", no_peers},
    {NULL, NULL},
};
