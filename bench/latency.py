"""How long a message takes to its subscribers at half of the load that a broker can bear.

First each broker's saturating rate (rounds of 100 messages), then an open loop: one publisher sends at half
of that rate, whatever happens, and a message's time begins when it is due, so that a broker that holds the
publisher up hides nothing. Then all of them once more at half of Mosquitto's rate: the same load for all.
"""

from bench.arena import Step
from bench.contest import LABELS, MOSQUITTO, Contest, MqttScale, Rival
from bench.fanout import NO_QOS_1
from bench.report import NOT_MEASURED, Section, Table

TOPIC = "latency"
SUBSCRIBERS = 100


def steps(scale: MqttScale) -> int:
    return len(LABELS) * 2 * 3


def measure(contest: Contest, scale: MqttScale, step: Step) -> Section:
    section = Section(f"MQTT: latency of delivery, 1 -> {SUBSCRIBERS}, 100 B")
    with contest.rivals() as rivals:
        for rival in rivals:
            rival.make_topic(TOPIC)
        for qos in (0, 1):
            section.tables.append(_table(rivals, qos, scale, step))
    section.notes = ["From the time when a message was due to be sent to the time when a subscriber had it."]
    return section


def _table(rivals: list[Rival], qos: int, scale: MqttScale, step: Step) -> Table:
    table = Table(f"QoS {qos}", ["", "messages/s", "p50 ms", "p99 ms", "broker, cores"])
    rates: dict[str, int] = {}
    for rival in rivals:
        step(f"saturating {rival.label}, QoS {qos}")
        if rival.has_qos(qos):
            found = _run(rival, "rounds", qos, scale, window=100)
            rates[rival.label] = int(found["deliveries"] / found["seconds"] / SUBSCRIBERS / 2)
    for whose in ("its own", MOSQUITTO):
        for label in LABELS:
            step(f"latency at half of {whose} rate, {label}, QoS {qos}")
            name = f"{label}, half of {whose} saturating rate"
            chosen = next((one for one in rivals if one.label == label), None)
            rate = rates.get(label if whose == "its own" else MOSQUITTO)
            if label not in rates or rate is None or chosen is None:
                why = NO_QOS_1 if chosen is not None and not chosen.has_qos(qos) else NOT_MEASURED
                table.rows.append([name, *[why] * 4])
            elif whose == "its own" or label != MOSQUITTO:
                result = _run(chosen, "paced", qos, scale, window=1000, rate=rate)
                table.rows.append(
                    [
                        name,
                        f"{rate:,}",
                        f"{result['p50_ms']:.2f}",
                        f"{result['p99_ms']:.2f}",
                        f"{result['broker_cpu'] / result['seconds']:.2f}",
                    ]
                )
    return table


def _run(rival: Rival, mode: str, qos: int, scale: MqttScale, **settings: float) -> dict[str, float]:
    return rival.pubsub(
        mode,
        TOPIC,
        subscribers=SUBSCRIBERS,
        qos=qos,
        warmup=scale.warmup,
        seconds=scale.seconds_of_target,
        **settings,
    )
