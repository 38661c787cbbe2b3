/* The header comes first, and twice; what it needs it brings. */
#include "tributary.h"

const char *two(void);

int main(void)
{
    const trib_options options = TRIB_OPTIONS_INIT;
    const trib_counters counters = TRIB_COUNTERS_INIT;
    const trib_memory memory = TRIB_MEMORY_INIT;
    const trib_id id = {{0}};
    const int sizes_are_set = options.size == sizeof options && counters.size == sizeof counters &&
                              memory.size == sizeof memory;
    const int version_matches = trib_version() == TRIB_VERSION;
    return sizes_are_set && version_matches && id.bytes[127] == 0 && two()[0] == 's' ? 0 : 1;
}
