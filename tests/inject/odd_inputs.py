"""Manifests as people have them: each with a vLLM or an SGLang that can be observed."""

SEVERAL_CONTAINERS = """\
# Ours since March.
apiVersion: apps/v1
kind: Deployment
metadata:
    name: llama   # four spaces, and a comment
spec:
    template:
        metadata:
            labels:
                app: llama
        spec:
            containers:
                - name: router
                  image: nginx:1.29
                - name: vllm
                  image: "vllm/vllm-openai:v0.32.0"
                  command: ['vllm', "serve"]
                  args:
                      - Qwen/Qwen3-0.6B
                      - --port=8001     # not the router's
                  env:
                      - name: HF_HOME
                        value: /models
                # the end of the list
            volumes:
                - name: models
                  emptyDir: {}
# the end of the file
"""

ARGUMENTS_ONLY = """\
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec:
  containers:
  - image: registry.example.com/mirror/vllm-openai-cpu@sha256:0123
    name: server
    args: ["--model", "Qwen/Qwen3-0.6B"]
"""

SHELL_FORM = """\
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: shell
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: ghcr.io/llm-d/llm-d-cuda:v0.4.0
        command: [/bin/bash, -lc]
        args:
        - |
          # start it
          export HF_HOME=/models
          exec vllm serve Qwen/Qwen3-0.6B \\
            --host 0.0.0.0 \\
            --port 8200; exit 1
          # no more
"""

VARIABLES_FROM_A_CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  VLLM_LOGGING_LEVEL: DEBUG
  template: "{{ messages }}"
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: configured
spec:
  template:
    metadata:
      annotations:
        team: search
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai
        args: [serve-me]
        envFrom:
        - configMapRef:
            name: settings
"""

EXISTING_PATH_AND_PLUGINS = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: plugged
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.32.0
        env:
        - {name: PYTHONPATH, value: "/opt/ours:/opt/theirs"}
        - name: VLLM_PLUGINS
          value: lora_resolver
"""

NO_PLUGINS_ALLOWED = EXISTING_PATH_AND_PLUGINS.replace("value: lora_resolver", "value: ''")

WINDOWS_LINES = SEVERAL_CONTAINERS.replace("\n", "\r\n")

NO_LAST_LINE_END = ARGUMENTS_ONLY.rstrip("\n")

EMPTY_VALUES = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: rendered
spec:
  template:
    metadata:
      labels:
    spec:
      initContainers:
      volumes:   # none today
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.32.0
          env: []
          volumeMounts: [ ]
"""

JSON = """\
{
\t"apiVersion": "v1",
\t"kind": "List",
\t"items": [
\t\t{
\t\t\t"apiVersion": "v1",
\t\t\t"kind": "Pod",
\t\t\t"metadata": {"name": "one", "labels": {}},
\t\t\t"spec": {"containers": [{"name": "s", "image": "lmsysorg/sglang:v0.5.23", "command":
\t\t\t\t["python3", "-m", "sglang.launch_server", "--port=30001", "--enable-metrics"]}]}
\t\t},
\t\t{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}, "spec": {}}
\t]
}
"""

ANCHORS_ELSEWHERE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: anchored
  labels: &labels {app: anchored}
spec:
  selector:
    matchLabels: *labels
  template:
    metadata:
      annotations: {a: b}
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.32.0
        resources: &resources
          limits: {nvidia.com/gpu: 1}
      - name: other
        image: nginx
        resources: *resources
"""

MANY_DOCUMENTS = f"""\
%YAML 1.1
---
# nothing but a comment
---

---
{ARGUMENTS_ONLY}...
---
{SHELL_FORM}"""

LEADER_AND_WORKERS = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: large
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      metadata:
        labels:
          role: leader
      spec:
        containers:
          - name: leader
            image: vllm/vllm-openai:v0.32.0
            command:
              - sh
              - -c
              - "start-ray.sh leader --size=$(LWS_GROUP_SIZE);
                 python3 -m vllm.entrypoints.openai.api_server --port 8080 --model large"
        volumes:
        - name: shm
          emptyDir: {medium: Memory}
    workerTemplate:
      spec:
        containers:
          - name: worker
            image: vllm/vllm-openai:v0.32.0
            command: [sh, -c, "start-ray.sh worker --address=$(LWS_LEADER_ADDRESS)"]
"""

KSERVE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: qwen
spec:
  predictor:
    securityContext: {runAsUser: 1000}
    model:
      modelFormat:
        name: vLLM
      storageUri: hf://Qwen/Qwen3-0.6B
---
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata:
  name: pair
spec:
  template:
    containers:
      - name: main
        securityContext: {runAsUser: 2000}
  prefill:
    template:
      securityContext:
        runAsUser: 2000
      containers:
        - name: main
          resources: {}
"""

SCHEDULED = """\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
            - name: batch
              image: vllm/vllm-openai:v0.32.0
              command: ["vllm", "serve", "m"]
"""

KEEPING_BLOCK_SCALAR = """\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: keeping
spec:
  template:
    metadata:
      labels: {"app": "keeping"}
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.32.0
        command: [sh, -c]
        args:
        - |+
          vllm serve m

          # the end


"""

SERVER_BY_SHAPE = "containers: [{name: vllm, image: 'vllm/vllm-openai:v0.32.0', args: [--model=m]}]"

ROLES_BY_SHAPE = f"""\
apiVersion: workloads.example/v1
kind: RoleGroup
metadata: {{name: roles}}
spec:
  roles:
  - name: prefill
    template: {{metadata: {{labels: {{a: b}}}}, spec: {{{SERVER_BY_SHAPE}}}}}
  - name: decode
    template:
      spec:
        {SERVER_BY_SHAPE}
  headGroupSpec:
    template:
      spec:
        containers:
        - name: head
          image: vllm/vllm-openai:v0.32.0
          command: [sh, -c, "ray start --head; vllm serve m --port 8080"]
  tasks:
    first:
      pod:
        spec:
          {SERVER_BY_SHAPE}
"""

RUNNERS = """\
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: runners}
spec:
  engineConfig:
    leader:
      runner:
        name: ome-container
        image: lmsysorg/sglang:v0.5.23
        command: [python3, -m, sglang.launch_server, --enable-metrics]
  routerConfig:
    runner: {name: router, image: ours/router, command: [python3, -m, sglang_router.launch_router]}
"""

TEMPLATE_OF_OPENSHIFT = f"""\
apiVersion: template.openshift.io/v1
kind: Template
metadata: {{name: t}}
objects:
- apiVersion: argoproj.io/v1alpha1
  kind: Rollout
  metadata: {{name: canary}}
  spec: {{template: {{spec: {{{SERVER_BY_SHAPE}}}}}}}
"""

OBSERVABLE = {
    name.lower(): text
    for name, text in list(globals().items())
    if name.isupper() and isinstance(text, str) and "kind:" in text
}
