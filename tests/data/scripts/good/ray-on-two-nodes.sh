#!/bin/bash
#SBATCH --job-name=vllm
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
readarray -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
HEAD=${NODES[0]}
export HEAD_IP=$(srun -N1 -n1 -w "$HEAD" hostname --ip-address | awk '{print $1}')
PORT=$(shuf -i 20000-60000 -n 1)
COMMON=(singularity run -B "/scratch/${SLURM_JOB_ACCOUNT}" --env "VLLM_HOST_IP=$HEAD_IP"
        /appl/local/laifs/containers/lumi-multitorch-latest.sif)
srun -N1 -n1 -w "$HEAD" "${COMMON[@]}" ray start --head --port="$PORT" --block &
sleep 10
for ((i=1; i<${#NODES[@]}; i++)); do
  srun -N1 -n1 -w "${NODES[i]}" "${COMMON[@]}" ray start --address="$HEAD_IP:$PORT" --block &
done
until curl -s "http://$HEAD:8000/health"; do sleep 5; done
export GLOO_SOCKET_IFNAME=hsn0 NCCL_SOCKET_IFNAME=hsn
"${COMMON[@]}" vllm serve m --tensor-parallel-size 8
