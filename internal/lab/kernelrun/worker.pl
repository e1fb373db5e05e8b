# One thread of a pod, as a process without any other thread: those of a language's runtime would be
# scheduled in the pod's cgroup, too, and be measured.
#
#   worker.pl serve START END WARM        serves requests from standard input until it ends
#   worker.pl spin START FROM UNTIL ...   spins from each FROM until the UNTIL behind it
#
# START is on the monotonic clock, all other times count from it; all are in seconds. A request is two native
# doubles: when it was to arrive, and how much CPU time it takes. At the end, "serve" prints the number of requests that
# were done, the CPU time that it gave them and the CPU time of those that were not done, and then the latency of
# each, a line each. Nothing that ends before WARM counts.
use strict;
use warnings;
use Time::HiRes qw(clock_gettime clock_nanosleep CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID TIMER_ABSTIME);

my ($task, $start, @times) = @ARGV;

sub now { return clock_gettime(CLOCK_MONOTONIC) - $start }

# chunk is some tens of microseconds of work.
my $x = 1;
sub chunk {
    for (1 .. 300) { $x = ($x * 1103515245 + 12345) & 0x7fffffff }
}

if ($task eq 'spin') {
    while (my ($from, $until) = splice @times, 0, 2) {
        clock_nanosleep(CLOCK_MONOTONIC, ($start + $from) * 1e9, TIMER_ABSTIME);
        chunk() while now() < $until;
    }
    exit;
}

my ($end, $warm) = @times;
my ($served, $useful, $backlog, @latencies) = (0, 0, 0);
my $due; # CPU time of this process when all requests so far have had theirs: what is read and written between them counts, too
while (sysread STDIN, my $request, 16) {
    my ($at, $work) = unpack 'dd', $request;
    $due //= clock_gettime(CLOCK_PROCESS_CPUTIME_ID);
    $due += $work;
    my $left = $work;
    while ($left > 0 && now() < $end) {
        chunk();
        $left = $due - clock_gettime(CLOCK_PROCESS_CPUTIME_ID);
    }
    my $done = now();
    if ($left > 0) {
        $backlog += $left;
        $due -= $left;
        $done = $end;
    }
    next if $done < $warm;
    $served++ if $left <= 0;
    $useful += $work - ($left > 0 ? $left : 0);
    push @latencies, $done - $at;
}
print join("\n", $served, $useful, $backlog, @latencies), "\n";
