"""Manifests in the shapes that projects publish, each kind of object with a vLLM once.

Each text is a file of one or two pods, so that a test starts two vLLMs beside each other. Between
them they have every form in which a command is written.
"""

WORKLOADS = """\
apiVersion: v1
kind: Pod
metadata: {name: arguments-only}
spec:
  containers:
  - name: server
    image: vllm/vllm-openai:v0.32.0
    args: [--model, Qwen/Qwen3-0.6B]
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: command-and-arguments
spec:
  template:
    metadata: {labels: {app: chat}}
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.32.0
        command: [vllm, serve]
        args:
        - Qwen/Qwen3-0.6B
        - --host=0.0.0.0
        - --port=8000
        env:
        - {name: PYTHONPATH, value: "/opt/ours:/opt/theirs"}
        - name: VLLM_PLUGINS
          value: lora_resolver
"""
"""The second has a PYTHONPATH of its own, and a VLLM_PLUGINS that does not name ours."""

SETS = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: shell}
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.32.0
        command: ["/bin/sh", "-c"]
        args: ["vllm serve Qwen/Qwen3-0.6B --trust-remote-code --max_num_batched_tokens 1024"]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: script}
spec:
  template:
    spec:
      securityContext: {runAsUser: 2000}
      containers:
      - name: vllm
        image: ghcr.io/llm-d/llm-d-cuda:v0.9.0
        command: [/bin/bash, -c]
        args:
        - |
          # a folder that the image lacks
          export HF_HOME="$HOME/hub"; mkdir -p "$HF_HOME"
          exec vllm serve Qwen/Qwen3-0.6B \\
            --host 0.0.0.0 \\
            --port 8200
"""

PREDICTORS = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: containers}
spec:
  predictor:
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.32.0
      args: ["--model", "Qwen/Qwen3-0.6B", "--port", "8080"]
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: model}
spec:
  predictor:
    securityContext: {runAsUser: 1000}
    model:
      modelFormat: {name: vLLM}
      args: [--trust-remote-code]
      storageUri: hf://Qwen/Qwen3-0.6B
"""

PREFILL_AND_DECODE = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: pair}
spec:
  model: {uri: "hf://Qwen/Qwen3-0.6B", name: qwen}
  template:
    containers:
    - name: main
      securityContext: {runAsUser: 2000}
      env:
      - {name: VLLM_ADDITIONAL_ARGS, value: "--trust-remote-code --seed 3"}
  prefill:
    template:
      containers:
      - name: main
        securityContext: {runAsUser: 2000}
"""
"""Their command comes from KServe's configuration."""

TWO_HOSTS = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: large}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - name: leader
          image: vllm/vllm-openai:v0.32.0
          command: [sh, -c]
          args:
          - "vllm serve Qwen/Qwen3-0.6B --port 8080 --api-server-count 1
             --data-parallel-size $(LWS_GROUP_SIZE) --data-parallel-size-local 1
             --data-parallel-address $(LWS_LEADER_ADDRESS)"
    workerTemplate:
      spec:
        containers:
        - name: worker
          image: vllm/vllm-openai:v0.32.0
          command: [sh, -c]
          args:
          - "vllm serve Qwen/Qwen3-0.6B --headless --data-parallel-size $(LWS_GROUP_SIZE)
             --data-parallel-size-local 1 --data-parallel-address $(LWS_LEADER_ADDRESS)
             --data-parallel-start-rank $(LWS_WORKER_INDEX)"
"""

_MAIN = """\
    - name: main
      image: ghcr.io/llm-d/llm-d-cuda:v0.9.0
      command: [/bin/bash, -c]
      args:
      - |-
        if [ "${LWS_WORKER_INDEX:-0}" -gt 0 ]; then
          ROLE="--headless --data-parallel-start-rank $LWS_WORKER_INDEX"
        else
          ROLE="--api-server-count ${VLLM_API_SERVER_COUNT:-1}"
        fi
        eval "exec vllm serve Qwen/Qwen3-0.6B --data-parallel-size 2 \\
          --data-parallel-size-local 1 --data-parallel-address ${LWS_LEADER_ADDRESS} \\
          ${ROLE} ${VLLM_ADDITIONAL_ARGS} $@"
      - "--"
"""
TWO_HOSTS_OF_KSERVE = f"""\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceServiceConfig
metadata: {{name: data-parallel}}
spec:
  parallelism: {{data: 2, dataLocal: 1}}
  template:
    containers:
{_MAIN}
  worker:
    containers:
{_MAIN}
"""

RAY = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: before-ray
spec:
  headGroupSpec:
    rayStartParams: {}
    template:
      spec:
        containers:
        - name: ray-head
          image: vllm/vllm-openai:v0.32.0
          command: [vllm, serve, Qwen/Qwen3-0.6B, --port, "8000", "&", "true"]
---
apiVersion: ray.io/v1
kind: RayService
metadata:
  name: after-ray
  annotations: {ray.io/overwrite-container-cmd: "true"}
spec:
  rayClusterConfig:
    headGroupSpec:
      rayStartParams: {}
      template:
        spec:
          containers:
          - name: ray-head
            image: vllm/vllm-openai:v0.32.0
            command: ["/bin/bash", "-lc", "--"]
            args: ["ulimit -n 2048; $KUBERAY_GEN_RAY_START_CMD & vllm serve Qwen/Qwen3-0.6B"]
"""
"""KubeRay joins the first one's command with its own `ray start`, and leaves the second alone."""

FILES = {
    name.lower(): text
    for name, text in list(globals().items())
    if name.isupper() and not name.startswith("_")
}
"""By what each is about."""
