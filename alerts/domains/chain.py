"""From the GPU to Prometheus: what makes all other alerts blind."""

from __future__ import annotations

from alerts.model import NODE, Alert, Domain, Runbook, held

_FLEET = ("amdgpu-fleet", "Nodes blind")
_NODE = ("amdgpu-reliability", "Health of the exporters")
_UP = 'up{job=~"@job"}'

DOMAIN = Domain(
    "chain",
    "The chain from GPU to Prometheus",
    (
        Alert(
            name="AmdGpuWatchdog",
            severity="info",
            scope="fleet",
            expr="vector(1)",
            summary="The chain of alerts works",
            description="Always fires. Send it to something outside that calls when it stops.",
            panel=_FLEET,
            runbook=Runbook(
                meaning="It always fires. When a dead man's switch calls because it no longer "
                "arrives, Prometheus, Alertmanager or the way between them is broken.",
                impact="No alert arrives.",
                diagnosis="```sh\n"
                "curl -s http://prometheus:9090/-/ready\n"
                "curl -s http://prometheus:9090/api/v1/alertmanagers\n"
                "amtool --alertmanager.url=http://alertmanager:9093 alert query AmdGpuWatchdog\n"
                "```",
                mitigation="Mend the first link of the chain that does not answer.",
            ),
            keep=None,
        ),
        Alert(
            name="AmdGpuExporterDown",
            severity="warning",
            scope="node",
            expr=f"{held(_UP)} == 0",
            summary="The exporter does not answer Prometheus",
            description="{{ $labels.instance }} of job {{ $labels.job }} can't be scraped; its "
            "GPUs are not watched.",
            panel=("amdgpu-fleet", "Nodes at a glance"),
            runbook=Runbook(
                meaning="Prometheus can't scrape the exporter of this node.",
                impact="Nothing is known of the node's GPUs. Alerts that fired go on for the time "
                "`hold`, with the last known figure; new faults are not seen.",
                diagnosis="Is it the node, the network, or the daemon? Why Prometheus fails stands "
                "on its page of targets.\n\n```sh\n"
                "curl -sv http://NODE:10450/-/healthy\n"
                "systemctl status amdgpu-exporter\n"
                "journalctl -u amdgpu-exporter --since -1h\n```",
                mitigation="Start the daemon, or drain the node if it does not answer at all. A "
                "scrape touches no device, so a stuck GPU is no cause.",
            ),
            inhibited_by=("AmdGpuFleetBlind",),
        ),
        Alert(
            name="AmdGpuExporterAbsent",
            severity="critical",
            scope="fleet",
            expr='absent(up{job=~"@job"} == 1)',
            summary="No exporter answers Prometheus",
            description="No target of a job that matches @job answers: no GPU is watched.",
            panel=_FLEET,
            runbook=Runbook(
                meaning="Prometheus has no target of the exporter that answers.",
                impact="No GPU of the fleet is watched.",
                diagnosis="Look whether the job still exists and is named as `job` in "
                "`alerts/thresholds.yaml` says.\n\n```sh\n"
                "curl -s http://prometheus:9090/api/v1/targets | grep -c amdgpu\n"
                "promtool check config /etc/prometheus/prometheus.yml\n```",
                mitigation="Bring back the scrape job, its service discovery, or the network.",
            ),
            keep=None,
        ),
        Alert(
            name="AmdGpuFleetBlind",
            severity="critical",
            scope="fleet",
            expr=f"1 - avg by (cluster) ({held(_UP)}) > @ratio\n"
            f"and on (cluster) count by (cluster) ({held(_UP)} == 0) >= @nodes",
            summary="Many exporters of a cluster do not answer",
            description="{{ $value | humanizePercentage }} of the exporters of the cluster "
            "{{ $labels.cluster }} can't be scraped.",
            panel=_FLEET,
            runbook=Runbook(
                meaning="More than the tolerated share of a cluster's exporters can't be scraped "
                "at once, which has a common cause more often than many own ones.",
                impact="A part of the fleet is not watched.",
                diagnosis="What do the lost ones share: a switch, a rack, a version, a rollout?\n\n"
                '```promql\nup{job=~"amdgpu.*"} == 0\n```',
                mitigation="Mend the network, or take back the rollout.",
            ),
        ),
        Alert(
            name="AmdGpuExporterVanished",
            severity="info",
            scope="node",
            expr=f'max by (job, {NODE}) (max_over_time(up{{job=~"@job"}}[@window])) == 1\n'
            f'unless on (job, {NODE}) up{{job=~"@job"}}',
            summary="A target is no longer in Prometheus's list",
            description="{{ $labels.instance }} of job {{ $labels.job }} answered within @window, "
            "and is no longer a target.",
            panel=_FLEET,
            runbook=Runbook(
                meaning="Service discovery no longer lists a node that it had. A node that was "
                "taken away looks the same as one that fell out by mistake.",
                impact="If it still exists, nothing is known of its GPUs.",
                diagnosis="```sh\nkubectl get nodes NODE\n"
                "kubectl get pods -A -o wide --field-selector spec.nodeName=NODE\n```",
                mitigation="Bring it back, or let the alert pass: it ends after the window.",
            ),
            keep=None,
        ),
        Alert(
            name="AmdGpuPollStale",
            severity="warning",
            scope="node",
            expr=f"{held('instance:amdgpu_poll_age:seconds')}\n"
            f"> on ({NODE}) group_left () @intervals * "
            f"{held('amdgpu_exporter_poll_interval_seconds')}",
            summary="The exporter serves an old picture",
            description="The last poll of {{ $labels.instance }} ended "
            "{{ $value | humanizeDuration }} ago.",
            panel=("amdgpu-reliability", "Age of the last poll"),
            runbook=Runbook(
                meaning="The exporter answers, but its polls no longer end: more than the "
                "tolerated number of intervals have passed since the last one.",
                impact="All figures of this node are old.",
                diagnosis="If the clock of the node is wrong, it is that: compare first.\n\n"
                "```sh\nchronyc tracking\njournalctl -u amdgpu-exporter --since -1h\n"
                "ps -o pid,stat,wchan:32,cmd -C amdgpu-exporter\n```",
                mitigation="Restart the daemon; counters and numbers of GPUs survive it. A worker "
                "in state D stays until the driver lets go: see AmdGpuWorkerAbandoned.",
            ),
        ),
        Alert(
            name="AmdGpuClockSkew",
            severity="warning",
            scope="node",
            expr=f"-{held('instance:amdgpu_poll_age:seconds')} > @ahead_seconds",
            summary="The node's clock is ahead",
            description="The clock of {{ $labels.instance }} is {{ $value | humanizeDuration }} "
            "ahead of Prometheus's.",
            panel=("amdgpu-reliability", "Age of the last poll"),
            runbook=Runbook(
                meaning="The last poll lies in Prometheus's future.",
                impact="Timestamps of events and the age of polls are wrong; logs don't match.",
                diagnosis="```sh\nchronyc tracking\ntimedatectl\n```",
                mitigation="Mend the time synchronisation of the node, or of Prometheus if all "
                "nodes are ahead.",
            ),
        ),
        Alert(
            name="AmdGpuSourceDown",
            severity="warning",
            scope="node",
            expr=f"{held('amdgpu_exporter_source_up')} == 0",
            summary="A source of the exporter does not answer",
            description="{{ $labels.source }} on {{ $labels.instance }} gives nothing; what it "
            "alone could tell is absent.",
            panel=("amdgpu-reliability", "Sources"),
            runbook=Runbook(
                meaning="One of AMD SMI, ROCm SMI, sysfs or the kubelet's socket can't be opened "
                "or does not answer.",
                impact="The other sources give what they can; what this one alone gives is absent.",
                diagnosis="The report names the reason and what to do.\n\n"
                "```sh\namdgpu-exporter support | sed -n '/SOURCES/,/GPUS/p'\n```",
                mitigation="Do what the report says: most often a library that does not match "
                "the driver, or a missing right.",
            ),
            inhibited_by=("AmdGpuWorkerAbandoned",),
        ),
        Alert(
            name="AmdGpuSourceRestarts",
            severity="warning",
            scope="node",
            expr=f"sum by ({NODE}, source) (\n"
            "  increase(amdgpu_exporter_source_restarts_total{"
            'reason!="devices_changed"}[@window])\n) > @restarts',
            summary="A source of the exporter keeps being restarted",
            description="{{ $labels.source }} on {{ $labels.instance }} was restarted "
            '{{ $value | printf "%.0f" }} times in @window.',
            panel=("amdgpu-reliability", "Restarts by reason"),
            keep="hold",
            runbook=Runbook(
                meaning="The worker of a source crashes, hangs, or passes its ceilings again and "
                "again. Restarts because devices came or went don't count.",
                impact="Gaps in the figures; most often a first sign of a failing GPU.",
                diagnosis="The label `reason` tells hang, crash, memory or open_files apart.\n\n"
                "```promql\nincrease(amdgpu_exporter_source_restarts_total[1h]) > 0\n```\n\n"
                "```sh\njournalctl -u amdgpu-exporter --since -1h | grep -i worker\n"
                "dmesg --level err,warn | grep amdgpu | tail\n```",
                mitigation="A hang that always names the same GPU is that GPU's: drain it. A crash "
                "is the library's: update it, or leave it out with `--sources`.",
            ),
        ),
        Alert(
            name="AmdGpuWorkerAbandoned",
            severity="warning",
            scope="node",
            expr=f"{held('amdgpu_exporter_source_abandoned_workers')} > 0",
            summary="A process hangs in the amdgpu driver",
            description="{{ $value }} workers of {{ $labels.source }} on {{ $labels.instance }} "
            "hang in the kernel and can't be killed.",
            panel=_NODE,
            runbook=Runbook(
                meaning="A worker is in uninterruptible sleep (state D): the driver does not "
                "return from a call.",
                impact="The device that it was reading is left alone. Jobs on it hang too, or will "
                "when they end.",
                diagnosis="```sh\nps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /^D/'\n"
                "cat /proc/PID/stack\ndmesg | grep -iE 'amdgpu|smu' | tail -50\n```",
                mitigation="Drain the node and reboot it. Restarting the daemon only adds another "
                "stuck process.",
            ),
        ),
        Alert(
            name="AmdGpuCollectorFailing",
            severity="warning",
            scope="node",
            expr=f"{held('amdgpu_exporter_collector_success')} == 0",
            summary="A collector of the exporter fails",
            description="The collector {{ $labels.collector }} on {{ $labels.instance }} does not "
            "get all it asks for.",
            panel=_NODE,
            runbook=Runbook(
                meaning="A reader of the collector failed, a device did not answer it, or a source "
                "that it asks is down and no other gave its values.",
                impact="Some series of this domain are absent.",
                diagnosis="```sh\namdgpu-exporter support\n"
                "journalctl -u amdgpu-exporter -n 100\n```",
                mitigation="Mend what the report names; switch the collector off with "
                "`--no-collector.NAME` if this hardware will never have it.",
            ),
            inhibited_by=("AmdGpuSourceDown", "AmdGpuDown"),
        ),
        Alert(
            name="AmdGpuValuesRejected",
            severity="warning",
            scope="node",
            expr=f"sum by ({NODE}, collector, reason) (\n"
            "  increase(amdgpu_exporter_rejected_values_total{"
            'reason=~"not_permitted|implausible|stale|busy|error|no_answer"}[@window])\n'
            ") > @values",
            summary="The hardware gives values that can't be used",
            description="{{ $labels.collector }} on {{ $labels.instance }} turned down "
            '{{ $value | printf "%.0f" }} values in @window: {{ $labels.reason }}.',
            panel=("amdgpu-reliability", "Rejected values"),
            keep="hold",
            runbook=Runbook(
                meaning="Values were not permitted, impossible, old, refused or not answered. "
                "The marks by which firmware says that it has no value don't count.",
                impact="These values are absent, so alerts on them can't fire.",
                diagnosis="The log names the first value of each kind, the report the reason.\n\n"
                "```sh\njournalctl -u amdgpu-exporter --since -1h | grep rejected\n"
                "amdgpu-exporter support\n```",
                mitigation="not_permitted: give the right that the report names. stale, busy or "
                "error on one GPU: treat it as a failing GPU. On all: update driver and library.",
            ),
            inhibited_by=("AmdGpuDown", "AmdGpuSourceDown"),
        ),
        Alert(
            name="AmdGpuRequestsRejected",
            severity="warning",
            scope="node",
            expr="increase(amdgpu_exporter_rejected_requests_total[@window]) > @requests",
            summary="The exporter turns requests away",
            description='{{ $labels.instance }} turned {{ $value | printf "%.0f" }} requests away '
            "in @window.",
            panel=_NODE,
            runbook=Runbook(
                meaning="More requests at once than `--web.max-requests` allows.",
                impact="Scrapes of some Prometheus are missing.",
                diagnosis="Who asks so much?\n\n```sh\n"
                "ss -tnp state established '( sport = :10450 )'\n```",
                mitigation="Stop what asks too often, or raise `--web.max-requests`.",
            ),
            keep="hold",
        ),
        Alert(
            name="AmdGpuConfigReloadFailed",
            severity="warning",
            scope="node",
            expr=f"{held('amdgpu_exporter_config_last_reload_successful')} == 0",
            summary="The exporter's configuration can't be read",
            description="{{ $labels.instance }} goes on with its last good configuration.",
            panel=_NODE,
            runbook=Runbook(
                meaning="The configuration file has an error since the last reload.",
                impact="The daemon goes on with the last good one; it would not start anew.",
                diagnosis="```sh\njournalctl -u amdgpu-exporter | grep -i config | tail -3\n```",
                mitigation="Mend the file and reload: `systemctl reload amdgpu-exporter`.",
            ),
        ),
        Alert(
            name="AmdGpuSimulated",
            severity="warning",
            scope="node",
            expr=f"{held('amdgpu_exporter_simulated')} == 1",
            summary="The exporter makes its values up",
            description="Every value of {{ $labels.instance }} is simulated.",
            panel=("amdgpu-fleet", "Nodes simulated"),
            runbook=Runbook(
                meaning="The daemon runs with `--sources simulated`.",
                impact="Nothing that this node shows is true.",
                diagnosis="```sh\namdgpu-exporter support | head -3\n"
                "systemctl cat amdgpu-exporter\n```",
                mitigation="Take `simulated` out of the sources; silence the alert where it is "
                "meant to be so.",
            ),
            keep=None,
        ),
    ),
)
