import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

export default defineConfig({
  plugins: [react()],
  // Parts of @grafana/ui were written for a bundler that provides Node's globals.
  define: { 'process.env.NODE_ENV': '"production"', 'process.env': '{}', global: 'window' },
  build: { minify: false, sourcemap: false, chunkSizeWarningLimit: 30000 },
});
