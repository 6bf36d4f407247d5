"""Temperatures against the devices' own limits, and throttling."""

from __future__ import annotations

from alerts.model import GPU, WHERE, Alert, Domain, Runbook, held

_TEMPERATURE = ("amdgpu-gpu", "Temperatures and limits")
_THROTTLING = ("amdgpu-gpu", "Throttling")
_COMMANDS = (
    "```sh\namd-smi metric --temperature --power --clock --gpu GPU\n"
    "ipmitool sdr type Fan\nipmitool sdr type Temperature\n```"
)


def _near(sensor: str, title: str, at: str) -> Alert:
    def limit(name: str) -> str:
        selector = f'amdgpu_temperature_limit_celsius{{sensor="{sensor}", limit="{name}"}}'
        return held(selector)

    temperature = held(f'amdgpu_temperature_celsius{{sensor="{sensor}"}}')
    return Alert(
        name=at.replace("AtLimit", "NearLimit"),
        severity="warning",
        scope="gpu",
        expr=f"{temperature}\n>= on ({GPU}, sensor) (\n"
        f"  {limit('critical')} - @margin\n"
        f"  or on ({GPU}, sensor) {limit('configured_warning')}\n)",
        summary=f"{title} is near its limit",
        description=f"The {sensor} of {WHERE} is at {{{{ $value }}}} °C, within @margin degrees of "
        "its limit.",
        panel=_TEMPERATURE,
        runbook=Runbook(
            meaning=f"{title} comes near the temperature at which the firmware throttles "
            "(hwmon `temp*_crit`); where the device reports none, it passed the configured "
            "warning.",
            impact="None yet. Somewhat hotter, the clocks fall and the job waits for this GPU.",
            diagnosis="One GPU hotter than its peers under the same load: heat sink, fan or cold "
            f"plate. All of a node: inlet air or coolant. All of a rack: the room.\n\n{_COMMANDS}",
            mitigation="Mend the cooling; until then move the load, or lower the power cap: "
            "`amd-smi set --power-cap WATTS --gpu GPU`.",
        ),
        inhibited_by=(at,),
    )


def _at(sensor: str, title: str, name: str) -> Alert:
    temperature = held(f'amdgpu_temperature_celsius{{sensor="{sensor}"}}')
    selector = (
        f'amdgpu_temperature_limit_celsius{{sensor="{sensor}", '
        'limit=~"critical|configured_critical"}'
    )
    return Alert(
        name=name,
        severity="critical",
        scope="gpu",
        expr=f"{temperature}\n>= on ({GPU}, sensor) min by ({GPU}, sensor) (\n"
        f"  {held(selector)}\n)",
        summary=f"{title} is at its limit",
        description=f"The {sensor} of {WHERE} is at {{{{ $value }}}} °C, its critical limit or "
        "above.",
        panel=_TEMPERATURE,
        runbook=Runbook(
            meaning=f"{title} has reached the temperature at which the firmware throttles; at "
            "`emergency` it switches the GPU off.",
            impact="The clocks fall, the job waits for this GPU. HBM that stays this hot makes "
            "more ECC errors and ages faster.",
            diagnosis=f"How far is it from `emergency`?\n\n"
            f'```promql\namdgpu_temperature_limit_celsius{{limit="emergency", sensor="{sensor}"}}'
            f"\n```\n\n{_COMMANDS}",
            mitigation="Take the load off now, then mend the cooling. If it rises without load, "
            "switch the node off.",
        ),
    )


def _throttled(reasons: str) -> str:
    return (
        f"sum by ({GPU}, reason) (\n"
        f"  increase(amdgpu_throttle_seconds_total{{{reasons}}}[@window])\n"
        ") / @window_seconds > @ratio"
    )


DOMAIN = Domain(
    "heat",
    "Heat and throttling",
    (
        _near("hbm", "The HBM", "AmdGpuHbmAtLimit"),
        _at("hbm", "The HBM", "AmdGpuHbmAtLimit"),
        _near("junction", "The hottest spot of the GPU", "AmdGpuJunctionAtLimit"),
        _at("junction", "The hottest spot of the GPU", "AmdGpuJunctionAtLimit"),
        Alert(
            name="AmdGpuThermalThrottling",
            severity="warning",
            scope="gpu",
            expr=_throttled('reason=~"junction_thermal|hbm_thermal|vr_thermal"'),
            summary="Heat holds a GPU's clocks down",
            description=f"{WHERE} was throttled for {{{{ $value | humanizePercentage }}}} of "
            "@window: {{ $labels.reason }}.",
            panel=_THROTTLING,
            keep="hold",
            runbook=Runbook(
                meaning="The firmware lowered the clocks because of the temperature that `reason` "
                "names: of the die, of the HBM, or of the voltage regulators.",
                impact="The GPU is slower than its peers, and a job over many GPUs as slow as it.",
                diagnosis="Compare with its peers.\n\n```promql\n"
                "increase(amdgpu_throttle_seconds_total[10m]) / 600\n```\n\n" + _COMMANDS,
                mitigation="As for the temperature near its limit: cooling first, then load.",
            ),
            inhibited_by=("AmdGpuHbmAtLimit", "AmdGpuJunctionAtLimit", "AmdGpuProchot"),
        ),
        Alert(
            name="AmdGpuProchot",
            severity="critical",
            scope="gpu",
            expr=_throttled('reason="prochot"'),
            summary="The board orders a GPU to slow down",
            description=f"{WHERE} was under PROCHOT for {{{{ $value | humanizePercentage }}}} of "
            "@window.",
            panel=_THROTTLING,
            keep="hold",
            runbook=Runbook(
                meaning="A signal of the board (PROCHOT), not the GPU's own firmware, forces the "
                "lowest clocks: a power supply, a regulator or the chassis is in trouble.",
                impact="The GPU all but stands still; the node may be about to lose power.",
                diagnosis="```sh\nipmitool sel list | tail -30\n"
                "ipmitool sdr type 'Power Supply'\n```",
                mitigation="Drain the node; mend what the board's log names.",
            ),
        ),
        Alert(
            name="AmdGpuPowerCapped",
            severity="info",
            scope="gpu",
            expr=_throttled('reason="power"'),
            summary="A GPU works at its power limit",
            description=f"{WHERE} was held by its power limit for "
            "{{ $value | humanizePercentage }} of @window.",
            panel=_THROTTLING,
            keep="hold",
            runbook=Runbook(
                meaning="The load would draw more than the power limit, so the firmware holds the "
                "clocks. Under full load this is normal.",
                impact="None, unless the limit is lower than it should be.",
                diagnosis="Does one GPU have a lower limit than its peers?\n\n"
                "```promql\namdgpu_power_limit_watts\n```",
                mitigation="If the limit is wrong: `amd-smi set --power-cap WATTS --gpu GPU`.",
            ),
        ),
    ),
)
