"""torchrun.py OPTION...: torchrun, also that of torch 1.13 under Python 3.11, which Debian has."""

from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.run import main

# There each start fails. from_str looks for a number among the members of Std, and since Python 3.11 a loop
# over flags leaves out 0: it returns None for what torchrun takes by itself.
if Std.from_str("0") is None:
    Std.from_str = classmethod(lambda cls, number: cls(int(number)))

if __name__ == "__main__":
    main()
