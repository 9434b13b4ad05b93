// Drives mqtt.js for the tests: a request per line of standard input, an answer or an event per line of
// standard output, all of it JSON. Payloads are base64.

const readline = require("node:readline");
const mqtt = require("mqtt");

const clients = new Map();
const say = (said) => process.stdout.write(JSON.stringify(said) + "\n");

function properties(said) {
  const found = { ...said };
  if (found.correlationData) found.correlationData = Buffer.from(found.correlationData, "base64");
  return found;
}

function shown(said) {
  if (!said) return {};
  const found = { ...said };
  if (found.correlationData) found.correlationData = found.correlationData.toString("base64");
  return found;
}

function connect(request, done) {
  const options = { ...request.options, reconnectPeriod: 0 };
  if (options.will) options.will.payload = Buffer.from(options.will.payload, "base64");
  const client = mqtt.connect(request.url, options);
  clients.set(request.client, client);
  client.on("message", (topic, payload, packet) =>
    say({
      event: "message",
      client: request.client,
      topic,
      payload: payload.toString("base64"),
      qos: packet.qos,
      retain: packet.retain,
      properties: shown(packet.properties),
    }),
  );
  client.once("connect", (packet) => done(null, { present: packet.sessionPresent }));
  client.once("error", (error) => done(error));
}

const verbs = {
  connect,
  subscribe: (request, done) =>
    clients
      .get(request.client)
      .subscribe(request.filter, request.options, (error, granted) =>
        done(error, { granted: (granted || []).map((one) => one.qos) }),
      ),
  unsubscribe: (request, done) => clients.get(request.client).unsubscribe(request.filter, (e) => done(e, {})),
  publish: (request, done) =>
    clients.get(request.client).publish(
      request.topic,
      Buffer.from(request.payload, "base64"),
      { ...request.options, properties: properties(request.options.properties) },
      (error) => done(error, {}),
    ),
  disconnect: (request, done) => clients.get(request.client).end(false, {}, () => done(null, {})),
  cut: (request, done) => {
    clients.get(request.client).stream.destroy();
    done(null, {});
  },
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  let answered = false;
  verbs[request.verb](request, (error, result) => {
    if (answered) return;
    answered = true;
    say({ event: "answer", id: request.id, error: error ? String(error) : null, result });
  });
});
