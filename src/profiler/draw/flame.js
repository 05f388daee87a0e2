/* What makes the picture answer to a reader. A frame is a group with data-b (where it begins), data-n (its length) and data-d (its depth),
 * all in values of the profile. Zooming writes x and width again; searching only changes fills. */
(function(){
'use strict';
var svg=document.documentElement,frames=[].slice.call(document.querySelectorAll('#frames>g')),
byId=function(id){return document.getElementById(id);},
left=+svg.getAttribute('data-left'),room=+svg.getAttribute('data-room'),
all=+svg.getAttribute('data-total'),view={b:0,n:all,d:0},pattern=null;
frames.forEach(function(g){
  g.f={b:+g.getAttribute('data-b'),n:+g.getAttribute('data-n'),d:+g.getAttribute('data-d'),
    rect:g.querySelector('rect'),text:g.querySelector('text'),
    title:g.querySelector('title').textContent};
  g.f.name=g.getAttribute('data-f');g.f.fill=g.f.rect.getAttribute('fill');
});
function fit(f,width){
  var chars=Math.floor((width-6)/7);
  if(!f.text){if(chars<3)return;f.text=document.createElementNS(svg.namespaceURI,'text');
    f.text.setAttribute('y',+f.rect.getAttribute('y')+12);f.rect.parentNode.appendChild(f.text);}
  f.text.textContent=chars<3?'':f.name.length<=chars?f.name:f.name.slice(0,chars-2)+'..';
}
function draw(){
  frames.forEach(function(g){
    var f=g.f,below=f.d<view.d,inside=f.b<view.b+view.n&&f.b+f.n>view.b,x,w;
    if(!inside||(!below&&(f.b<view.b||f.b+f.n>view.b+view.n))){g.setAttribute('class','off');return;}
    x=below?0:(f.b-view.b)/view.n*room;w=below?room:f.n/view.n*room;
    g.setAttribute('class',below?'below':'');
    f.rect.setAttribute('x',(left+x).toFixed(2));f.rect.setAttribute('width',w.toFixed(2));
    fit(f,w);if(f.text)f.text.setAttribute('x',(left+x+3).toFixed(2));
  });
  byId('reset').setAttribute('class',view.n===all&&view.d===0?'off':'button');
  mark();
}
function mark(){
  var hits=[],sum=0,end=-1;
  frames.forEach(function(g){
    var f=g.f,hit=pattern!==null&&pattern.test(f.name);
    f.rect.setAttribute('fill',hit?'rgb(230,0,230)':f.fill);
    if(hit&&f.d>=view.d&&g.getAttribute('class')!=='off')hits.push(f);
  });
  hits.sort(function(a,b){return a.b-b.b||b.n-a.n;});
  hits.forEach(function(f){if(f.b>=end){sum+=f.n;end=f.b+f.n;}});
  byId('matched').textContent=pattern===null?'':'matched: '+(100*sum/view.n).toFixed(2)+' %';
  byId('search').textContent=pattern===null?'search':'clear search';
}
function zoom(f){view={b:f.b,n:f.n,d:f.d};draw();}
function reset(){view={b:0,n:all,d:0};draw();}
function search(text){
  if(text===null||text===''){pattern=null;}
  else{try{pattern=new RegExp(text,'i');}
    catch(e){pattern=new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g,'\\$&'),'i');}}
  mark();
}
function ask(){
  if(pattern!==null){search(null);return;}
  var text=window.prompt('Search frames (regular expression)','');
  if(text)search(text);
}
frames.forEach(function(g){
  g.addEventListener('click',function(){zoom(g.f);});
  g.addEventListener('mouseover',function(){byId('details').textContent=g.f.title;});
  g.addEventListener('mouseout',function(){byId('details').textContent='';});
});
byId('reset').addEventListener('click',reset);
byId('search').addEventListener('click',ask);
window.addEventListener('keydown',function(e){
  if((e.ctrlKey||e.metaKey)&&e.key==='f'){e.preventDefault();ask();}
  if(e.key==='Escape'){search(null);reset();}
});
window.flame={search:search,zoom:zoom,reset:reset,frames:frames};
search(svg.getAttribute('data-search')||null);
})();
