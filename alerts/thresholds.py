"""Every number that only rules compare with, and why it is that number.

Those that a panel draws as well are in `monitoring/thresholds.py`.
"""

JOB = "kvscope"
"""Name of the scrape job; also in deploy/prometheus/prometheus.yml and in the ServiceMonitor."""

# Targets

MANY_TARGETS_SHARE = 0.1
"""Share of a job's targets that are down at the same time: what fails together has one cause."""
MANY_TARGETS = 3
"""Least number of them: one of five is a tenth and more, and says nothing about the others."""
SEEN = "7d"
"""How long a server or a model that has gone is missed. Until then the alert stands."""
LOADING = "30m"
"""After which a server that has not become ready alerts; `--loading` sets another time for one
model. The largest models load for a quarter of an hour from a disk, and for half an hour from far
away."""
PAGE_BELOW = 3
"""Replicas of a model that are heard: with fewer, what befalls one of them pages; with as many or
more it is a warning, since the others have its load and service levels page if that hurts."""
OUTAGES = 3
"""Ends of an engine within an hour: a roll-out is one, and a second one that puts it right."""

# Prefix cache

HIT_RATIO_LEFT = 0.5
"""Half of the former ratio: that of a mixed workload moves by a quarter in a day, not by half."""
HIT_RATIO_WORTH = 0.2
"""Where less than a fifth of the tokens hit, the loss changes little."""
WHATIF_BLOCKS = 100
"""Least number of blocks queried in the window: below it, one odd lookup determines the share."""
PREFIX_TOKENS_PER_SECOND = 10
"""Least number of tokens queried: below it, a handful of requests determines the ratio."""

# Memory

NEIGHBOUR_GREW_BYTES = 2**30
"""Growth of other processes in half an hour. Opening a context takes about half a GiB; a process
that takes more than one works on the card."""
HOST_GROWS_MINUTES = 30
"""Within which memory that goes on growing as it did reaches the limit, for a page. A pinned pool
that was given 96 % of the limit stays there: that is a warning."""

# GPUs

SLOWED_SHARE = 0.4
"""Share of five minutes: two minutes in all."""
LINK_SHARE = 0.75
"""Share of the rate that the device and its slot allow: half of the lanes, or one generation less,
is 0.5."""
LINK_BUSY = 0.5
"""Share of five minutes with a kernel running. An idle card may lower its link to save power, and
raises it again for work."""

# Engine


SILENCE_SECONDS = 60
"""An idle engine emits an event every second: a memory sample or a heartbeat."""

STARVED_SECONDS = 600
"""As long as a whole queue has to stand still for KvscopeQueueStuck."""
STARVED_FACTOR = 10
"""Times the mean wait of the others. Where requests are served in turn, the oldest has waited about
as long as they do, or twice as long while a queue builds up."""

# Replicas among replicas, over ten minutes

ERROR_OUTLIER_MIN = 5
"""Failed requests of one replica: fewer concern one user."""
ERROR_OUTLIER_PAGE = 30
"""As many page: a balancer sends more and more to a replica that fails at once."""

OUTLIER_REPLICAS = 3
"""Least number of replicas with traffic: of two, it is unknown which one is odd."""
ERROR_OUTLIER_SHARE = 0.1
"""Share of failed requests above the median's."""
TTFT_OUTLIER_FACTOR = 3
"""Mean time to the first token against the median's. Routing by prefix and prompts of different
lengths make replicas differ by up to twice."""
TTFT_OUTLIER_SECONDS = 1
"""Below it users notice nothing."""
OUTLIER_MIN_FIRST_TOKENS = 20
"""Below it, a few long prompts determine the mean."""
ITL_OUTLIER_FACTOR = 1.6
"""Mean time between two tokens against the median's. Half speed is 2; replicas differ by a third
with the sizes of their batches."""
ITL_OUTLIER_SECONDS = 0.02
"""Below it users notice nothing: fifty tokens a second."""
OUTLIER_MIN_TOKENS = 1000
"""Below it, a few preemptions determine the mean."""

# Capacity that is not there or not used

POOL_OF_MEDIAN = 0.9
"""Share of the median replica's blocks. Profiling at the start varies by one or two per cent; a
tenth is a neighbour on the card, or another flag."""
IDLE_FIRST_TOKENS = 20
"""First tokens of the median replica in a quarter of an hour: below it, a replica may have none by
chance."""
THRASH_SHARE = 0.5
"""Share of a tier's stored blocks that it had held and removed before: as much is copied again as
is new."""
THRASH_BLOCKS = 1
"""Stored blocks a second; below it the copies go unnoticed."""

NVLINK_XIDS = ("144", "145", "146", "147", "148", "149", "150")
XIDS = {
    "critical": (
        *("46", "48", "62", "64", "74", "79", "95", "109", "110", "119", "120", "136", "140"),
        *("143", "158"),
    ),
    "warning": ("31", "94", *NVLINK_XIDS, "other"),
    "info": ("13", "43", "45", "63", "92"),
}
"""Severity of each XID by the immediate action in NVIDIA's catalogue (docs.nvidia.com, "Analyzing
Xid Errors with the Xid Catalog"): reset or restart of the machine, restart of the application,
nothing. Whether NVLink 5 wants a reset depends on details that NVML does not tell. 154 announces a
recovery action, which has its own metric."""
