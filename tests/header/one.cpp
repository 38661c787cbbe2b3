// The header comes first, and twice; what it needs it brings. Linked as users do.
#include "tributary.h"
#include "tributary.h"

const char *two();

int main()
{
    const trib_options options = TRIB_OPTIONS_INIT;
    const trib_counters counters = TRIB_COUNTERS_INIT;
    const trib_memory memory = TRIB_MEMORY_INIT;
    const trib_tensor tensor = {nullptr, 0, TRIB_F32, 0};
    const bool sizes_are_set = options.size == sizeof options &&
                              counters.size == sizeof counters && memory.size == sizeof memory;
    const bool version_matches = trib_version() == TRIB_VERSION;
    return sizes_are_set && version_matches && tensor.count == 0 && two()[0] == 's' ? 0 : 1;
}
