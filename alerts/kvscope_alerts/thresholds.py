"""Every number that only rules compare with, with its reason.

Numbers that panels draw as well are in `monitoring/kvscope_monitoring/thresholds.py`.
"""

JOB = "kvscope"
"""Name of the scrape job; also in deploy/prometheus/prometheus.yml and in the ServiceMonitor."""

FLEET_JOB = "kvscope-fleet"
"""Job of `kvscope fleet`: not that of inference servers, whose alerts would count it as one."""

# Targets

MANY_TARGETS_SHARE = 0.1
"""Share of a job's targets that are down at the same time: simultaneous failures share a cause."""
MANY_TARGETS = 3
"""Minimum number of them: one of five is more than a tenth, but says nothing about the others."""
SEEN = "7d"
"""Time for which a server or a model that has gone is remembered. Until then the alert fires."""
GONE_FOR = "1d"
"""Time for which a model that has gone is remembered: a day of pages is enough for one that was
retired where kube-state-metrics does not say so."""
LOADING = "30m"
"""Time after which a server that is not ready alerts; `--loading` sets a different time for one
model. The largest models take a quarter of an hour to load from a disk, and half an hour from
remote storage."""
PAGE_BELOW = 3
"""Replicas of a model that are heard: with fewer, a failure of one pages; otherwise it is a
warning, since the others take its load, and service levels page if that hurts."""
OUTAGES = 3
"""Ends of an engine within an hour: a roll-out is one, and its correction a second one."""

# KV pool

HELD_SHARE = 0.25
"""Share of the usable blocks that ended requests hold while the pool is saturated. A prefill server
always holds some, until the decode server has read them; a quarter is what a third more sequences
would take."""
HELD_SECONDS = 600
"""After which a transfer is taken for lost: vLLM's NIXL connector gives up after 480 seconds."""

# Prefix cache

HIT_RATIO_LEFT = 0.5
"""Half of the former ratio: a mixed workload's ratio moves by a quarter in a day, not by half."""
HIT_RATIO_WORTH = 0.2
"""If less than a fifth of the tokens hit, the loss changes little."""
WHATIF_BLOCKS = 100
"""Minimum number of blocks queried in the window: below it, one odd lookup determines the share."""
PREFIX_TOKENS_PER_SECOND = 10
"""Minimum number of tokens queried: below it, a handful of requests determines the ratio."""

# A model compared with itself, at the same hour of yesterday and of the week before

FELL_TO = 0.1
"""Share of the usual traffic that is left. Nights, weekends and releases are in what is usual."""
FELL_WAS = 100
"""Requests of an hour, on both days: fewer come and go by chance."""
SLOWER_FACTOR = 3
"""Times the mean between two tokens. A busier hour decodes up to twice as slowly."""
SLOWER_SECONDS = 0.05
"""Below it users notice nothing: twenty tokens a second."""
SLOWER_MIN_TOKENS = 36_000
"""Tokens of an hour, then and now: below it a few preemptions determine the mean."""
GIVE_UP_SHARE = 0.2
"""Share of the requests that clients give up. People stop one answer in ten that they have read
enough of; completions of an editor are given up at each keystroke, and have yesterday's share."""
GIVE_UP_FACTOR = 2
"""Times the share of the same hour of yesterday."""
GIVE_UP_MIN = 20
"""Requests given up in a quarter of an hour: fewer are one user's."""

# Memory

NEIGHBOUR_GREW_BYTES = 2**30
"""Growth of other processes in half an hour. Opening a context takes about half a GiB; a process
that takes more than one works on the card."""
HOST_GROWS_MINUTES = 30
"""Time within which steadily growing memory reaches the limit, for a page. A pinned pool that was
given 96 % of the limit stays there: that is a warning."""

# GPUs

SLOWED_SHARE = 0.4
"""Share of five minutes: two minutes in total."""
HOT_CELSIUS = 87
"""Data centre cards begin to lower their clocks there (NVIDIA's data sheets: 85 to 93); DCGM's
exporter does not report by default that they do."""
LINK_SHARE = 0.75
"""Share of the rate that the device and its slot allow: half the lanes, or one generation less,
gives 0.5."""
LINK_BUSY = 0.5
"""Share of five minutes with a kernel running. An idle card may slow down its link to save power,
and speeds it up again for work."""

# Engine


SILENCE_SECONDS = 45
"""An idle engine emits an event every second: a memory sample or a heartbeat. So the alert
comes within two minutes also where scrapes and evaluations are half a minute apart."""

NOT_ADMITTED = 0.5
"""Mean number of requests that wait although there is room: at least one, most of the time. What a
scheduler leaves for its next step lasts milliseconds."""
STARVED_SECONDS = 600
"""As long as a whole queue has to be stuck for KvscopeQueueStuck."""
STARVED_FACTOR = 10
"""Multiple of the others' mean wait. If requests are served in turn, the oldest has waited about as
long as they do, or twice as long while a queue builds up."""

# Replicas among replicas, over ten minutes

ERROR_OUTLIER_PAGE = 30
"""Failed requests of one replica that page: a balancer sends more and more to a replica that fails
immediately. Fewer are left to the model's budget."""

OUTLIER_REPLICAS = 3
"""Minimum replicas with traffic: of two, it is unknown which one is odd."""
ERROR_OUTLIER_SHARE = 0.1
"""Share of failed requests above the median's."""
TTFT_OUTLIER_FACTOR = 3
"""Mean time to the first token relative to the median's. Routing by prefix and prompts of different
lengths make replicas differ by up to twice."""
TTFT_OUTLIER_SECONDS = 1
"""Below it users notice nothing."""
OUTLIER_MIN_FIRST_TOKENS = 20
"""Below it, a few long prompts determine the mean."""
ITL_OUTLIER_FACTOR = 1.6
"""Mean time between two tokens relative to the median's. Half speed is 2; replicas differ by a
third with the sizes of their batches."""
ITL_OUTLIER_SECONDS = 0.02
"""Below it users notice nothing: fifty tokens a second."""
OUTLIER_MIN_TOKENS = 1000
"""Below it, a few preemptions determine the mean."""

# Capacity that is not there or not used

POOL_OF_MEDIAN = 0.9
"""Share of the median replica's blocks. Profiling at the start varies by one or two per cent; a
tenth is a neighbour on the card, or another flag."""
IDLE_FIRST_TOKENS = 20
"""First tokens of the median replica in a quarter of an hour: below this, a replica may have none
by chance."""

NVLINK_XIDS = ("144", "145", "146", "147", "148", "149", "150")
XIDS = {
    "critical": (
        *("46", "48", "62", "64", "74", "79", "95", "109", "110", "119", "120", "136", "140"),
        *("143", "158"),
    ),
    "warning": ("31", "94", *NVLINK_XIDS, "other"),
}
"""Severity of each XID by the immediate action in NVIDIA's catalogue (docs.nvidia.com, "Analyzing
Xid Errors with the Xid Catalog"): reset or restart of the machine, restart of the application,
nothing. Whether NVLink 5 requires a reset depends on details that NVML does not report. 154
announces a recovery action, which has its own metric."""
HARMLESS_XIDS = ("13", "43", "45", "63", "92")
"""Errors of an application, after which nothing has to be done for the card: no alert."""
