// Prefill and decode of a GGUF file by llama.cpp through node-llama-cpp, on CPU.
//
// A baseline of `launch/benchmark.py --benchmark=language_model`. Takes sizes as JSON from standard input and
// prints tokens per second as one line of JSON, {name: rate}.

import {createRequire} from "node:module";
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const asked = JSON.parse(readFileSync(0, "utf-8"));
const resolved = createRequire(asked.folder + "/").resolve("node-llama-cpp");
const {getLlama} = await import(pathToFileURL(resolved));
// Its threads wait in busy loops: more of them than free cores make it many times slower.
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: asked.threads});
const model = await llama.loadModel({modelPath: asked.gguf});

function prompt(length) {
    return Array.from({length}, () => Math.floor(Math.random() * asked.vocabulary));
}

// Evaluate a prompt of each sequence and sample `count` tokens after it, all sequences in one batch.
async function generate(context, sequences, length, count) {
    await Promise.all(sequences.map(async (sequence) => {
        await sequence.clearHistory();
        let sampled = 0;
        for await (const _ of sequence.evaluate(prompt(length), {temperature: 1, yieldEogToken: true})) {
            sampled += 1;
            if (sampled >= count) break;
        }
    }));
}

async function seconds(run) {
    const times = [];
    for (let i = 0; i <= asked.repeats; i++) {
        const start = performance.now();
        await run();
        times.push((performance.now() - start) / 1000);
    }
    return times.slice(1).sort((a, b) => a - b)[Math.floor((asked.repeats - 1) / 2)];
}

const rates = {};
for (const slots of asked.slots) {
    const context = await model.createContext({
        sequences: slots, contextSize: 512, batchSize: 512, threads: asked.threads,
    });
    const sequences = Array.from({length: slots}, () => context.getSequence());
    const prefill = await seconds(() => generate(context, sequences, asked.prompt, 1));
    const decode = await seconds(() => generate(context, sequences, asked.decode_prompt, asked.new_tokens));
    rates[`prefill ${slots}`] = slots * asked.prompt / prefill;
    rates[`decode ${slots}`] = slots * asked.new_tokens / decode;
    await context.dispose();
}
console.log(JSON.stringify(rates));
process.exit(0);
