/* The debug switch. */
#include "csrc/base/debug.h"

#include "csrc/base/environment.h"
#include "csrc/base/lock.h"

/* Guards the two below. */
static struct tri_lock lock = TRI_LOCK_INIT;
static bool chosen; /* by the program, or by the environment */
static bool on;

bool tri_debug(void)
{
    tri_lock(&lock);
    if (!chosen)
        on = tri_environment_asks("TRIBUTARY_DEBUG");
    chosen = true;
    const bool result = on;
    tri_unlock(&lock);
    return result;
}

void tri_debug_set(bool wanted)
{
    tri_lock(&lock);
    chosen = true;
    on = wanted;
    tri_unlock(&lock);
}
